"""scikit-learn's MLPClassifier on its digits; prints one JSON line.

allometry run --command "python docs/examples/sklearn_mlp.py {width} {D} {seed}"
    --shapes "width=4,8,16; D=300,600,1200" --metric json:loss
"""

import json
import sys
import warnings

from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier

width, rows, seed = map(int, sys.argv[1:4])
x, y = load_digits(return_X_y=True)
model = MLPClassifier((width,), max_iter=20, random_state=seed, learning_rate_init=0.01)
warnings.simplefilter("ignore")  # twenty epochs do not converge, and need not
model.fit(x[:rows], y[:rows])
loss = log_loss(y[1200:], model.predict_proba(x[1200:]))
size = sum(w.size for w in model.coefs_) + sum(b.size for b in model.intercepts_)
print(
    json.dumps({"loss": float(loss), "N": size, "D": rows, "C": 6 * size * rows * model.n_iter_})
)
