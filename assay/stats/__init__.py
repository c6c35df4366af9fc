"""Statistics of times: ratios, changes, growth. Pure: numbers in, numbers and codes out."""
