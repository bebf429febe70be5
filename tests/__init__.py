"""The tests mirror the folders of src/offbook."""
