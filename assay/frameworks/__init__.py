"""How a framework turns a program into something compiled."""
