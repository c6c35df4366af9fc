"""Programs of libraries that memsafe was not built on, within shares of their memory."""
