"""Memory: LSTM and GRU."""

from ppo.extensions import Extension, Model

HERE = "ppo.extras.recurrent.model"

EXTENSION = Extension(
    models={
        "lstm": Model(
            f"{HERE}:make_lstm_trunk", 128, "any", f"{HERE}:Recurrent", shares_trunk=True
        ),
        "gru": Model(f"{HERE}:make_gru_trunk", 128, "any", f"{HERE}:Recurrent", shares_trunk=True),
    },
)
