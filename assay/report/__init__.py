"""Reports: records become a grid, explanations, Markdown, JUnit XML; nothing here judges."""
