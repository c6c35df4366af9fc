"""Statistics of times: ratios, growth, change points. Pure: numbers in, numbers and codes out."""
