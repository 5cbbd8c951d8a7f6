from sparselabel.cli import main

main()
