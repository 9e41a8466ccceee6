"""Pure decisions and their texts: consequences of events, causes of ends, reasons for waiting, notices to users."""
