from contml.app.experiment.building import Experiment as Experiment
from contml.app.experiment.checking import check as check
from contml.app.experiment.features import extract_features as extract_features
from contml.app.experiment.loading import (
    PRESETS as PRESETS,
    OwnData as OwnData,
    load as load,
    load_run as load_run,
    load_table as load_table,
)
from contml.app.experiment.names import (
    config_names as config_names,
    config_text as config_text,
    data_task as data_task,
    task_table as task_table,
)
from contml.app.experiment.parts import schema as schema
from contml.app.experiment.saved_run import read_evaluation as read_evaluation
from contml.app.experiment.train_and_evaluate import (
    complete_run as complete_run,
    evaluate_run as evaluate_run,
    report_run as report_run,
    resume as resume,
    train as train,
)
