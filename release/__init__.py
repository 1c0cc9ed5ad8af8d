"""The files that are published beside the repository itself: `python -m release` builds and checks them."""
