"""Tools for working on Underseal: the clause table and the mutants. Nothing here is shipped."""
