"""What goes out to addresses that operators named: how it is signed, and how it is kept from private networks."""
