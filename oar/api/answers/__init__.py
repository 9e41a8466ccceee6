"""What is sent back: records, lists, exports, problems as bytes; and the bodies of forms that come in."""
