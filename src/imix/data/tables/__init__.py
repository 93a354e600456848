"""Tables: reads CSV files, Parquet files and data frames, and encodes their columns as numbers."""
