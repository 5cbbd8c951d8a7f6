"""Generated scenes, the built-in data: shapes < objects (the twelve classes) < canvas < world < generate."""
