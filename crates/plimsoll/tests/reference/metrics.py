"""Writes `metrics.json`: metrics as scikit-learn and NumPy compute them.

    pip install scikit-learn
    python metrics.py

Every case has the predictions and targets that are measured, and the values by name. In `classes` and `two_classes` some
labels are -1, which stand for nothing: the values are of the others.
"""

import json
from pathlib import Path

import numpy as np
from sklearn import metrics

random = np.random.default_rng(7)
SAMPLES = 97


def rounded(x):
    """Numbers that float32 has, with few digits."""
    return np.round(x, 3).astype(np.float32).astype(np.float64)


def listed(prediction, target, values):
    return {"prediction": prediction.tolist(), "target": target.tolist(), "values": values}


def softmax(logits):
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def classes():
    # No sample of class 5, and nothing is predicted to be of class 6.
    labels = random.choice([0, 1, 2, 3, 4, 6], SAMPLES)
    logits = rounded(random.normal(size=(SAMPLES, 7)) + 1.5 * (np.arange(7) == labels[:, None]))
    logits[:, 6] -= 20
    counted = random.random(SAMPLES) > 0.2
    target = np.where(counted, labels, -1)
    x, y = logits[counted], labels[counted]
    predicted = x.argmax(axis=1)
    top = lambda k: metrics.top_k_accuracy_score(y, x, k=k, labels=range(7))
    macro = dict(average="macro", zero_division=0)
    cross_entropy = -np.log(softmax(x)[np.arange(len(y)), y])
    return listed(logits, target, {
        "loss": cross_entropy.mean(),
        "accuracy": metrics.accuracy_score(y, predicted),
        "top_2": top(2),
        "top_5": top(5),
        "perplexity": np.exp(cross_entropy.mean()),
        "macro_precision": metrics.precision_score(y, predicted, **macro),
        "macro_recall": metrics.recall_score(y, predicted, **macro),
        "macro_f1": metrics.f1_score(y, predicted, **macro),
    })


def of_binary(y, scores):
    predicted = scores > 0
    return {
        "auc": metrics.roc_auc_score(y, scores),
        "precision": metrics.precision_score(y, predicted),
        "recall": metrics.recall_score(y, predicted),
        "f1": metrics.f1_score(y, predicted),
    }


def two_classes():
    labels = random.integers(0, 2, SAMPLES)
    logits = rounded(random.normal(size=(SAMPLES, 2)) + (np.arange(2) == labels[:, None]))
    counted = random.random(SAMPLES) > 0.2
    scores = logits[:, 1] - logits[:, 0]
    return listed(logits, np.where(counted, labels, -1), of_binary(labels[counted], scores[counted]))


def binary():
    labels = random.integers(0, 2, SAMPLES)
    # Some scores are equal, which count half.
    logits = np.round(random.normal(scale=3, size=SAMPLES) + 2 * labels, 1).astype(np.float32).astype(np.float64)
    return listed(logits, labels.astype(np.float64), of_binary(labels, logits))


def numbers():
    target = rounded(random.normal(loc=40, size=(SAMPLES, 3)))
    prediction = rounded(target + random.normal(scale=0.4, size=(SAMPLES, 3)))
    y, x = target.reshape(-1), prediction.reshape(-1)
    return listed(prediction, target, {
        "loss": metrics.mean_squared_error(y, x),
        "mae": metrics.mean_absolute_error(y, x),
        "rmse": metrics.root_mean_squared_error(y, x),
        "r2": metrics.r2_score(y, x),
    })


cases = {"classes": classes(), "two_classes": two_classes(), "binary": binary(), "numbers": numbers()}
(Path(__file__).parent / "metrics.json").write_text(json.dumps(cases) + "\n")
