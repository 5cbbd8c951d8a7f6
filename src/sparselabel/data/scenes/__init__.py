"""Generated scenes, the embedded data: shapes < objects (the twelve classes) < canvas < world < generate."""
