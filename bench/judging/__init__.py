"""The predictor against measured times: data, scores, fit, page."""
