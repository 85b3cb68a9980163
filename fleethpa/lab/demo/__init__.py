"""`fleethpa demo`: a story of under two minutes in which every change is shown with its decision."""
