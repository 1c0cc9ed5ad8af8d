"""The files published besides the repository itself: `python -m release` builds and checks them."""
