"""The parts of oarstat: filters, columns, explanations, charts."""
