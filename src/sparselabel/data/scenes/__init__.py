"""How the generated scenes are drawn: shapes < land, air, water (the twelve things) < canvas."""
