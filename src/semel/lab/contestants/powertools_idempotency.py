"""Powertools for AWS Lambda, idempotency utility, on a persistence layer of our own.

The package stores its records in DynamoDB, and documents how to write another layer: this one keeps them in SQLite
under the same conditions as its DynamoDB layer writes. The step's business identity is the key.

`default`    with a Lambda context: a record left in progress may be taken over once that invocation's time is up.
`strictest`  besides, the payload is validated, and a call without a key is refused.
"""

from __future__ import annotations

import json
import sqlite3
import time
from typing import Any

from aws_lambda_powertools.utilities.idempotency import (
    BasePersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyItemAlreadyExistsError,
    IdempotencyItemNotFoundError,
)
from aws_lambda_powertools.utilities.idempotency.persistence.datarecord import DataRecord

from semel.lab.contestants.stage import Stage, name_of_step, run_plan
from semel.lab.wire import JSON, ToolCall

TIME_LEFT_MILLISECONDS = 1_000
SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    id TEXT PRIMARY KEY, status TEXT, expires_at INTEGER, in_progress_until INTEGER, data TEXT, payload_hash TEXT
)
"""
PUT = """
INSERT INTO records VALUES (:id, :status, :expires_at, :in_progress_until, '', :payload_hash)
ON CONFLICT (id) DO UPDATE
   SET status = excluded.status, expires_at = excluded.expires_at,
       in_progress_until = excluded.in_progress_until, payload_hash = excluded.payload_hash
 WHERE records.expires_at < :now
    OR (records.status = 'INPROGRESS' AND records.in_progress_until < :now * 1000)
"""


class SqlitePersistenceLayer(BasePersistenceLayer):
    """Under the conditions of the package's DynamoDB layer: a new key, an expired one, or one whose time is up."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute(SCHEMA)

    def _get_record(self, idempotency_key: str) -> DataRecord:
        row = self._connection.execute("SELECT * FROM records WHERE id = ?", [idempotency_key]).fetchone()
        if row is None:
            raise IdempotencyItemNotFoundError
        return DataRecord(*row)

    def _put_record(self, data_record: DataRecord) -> None:
        written = self._connection.execute(
            PUT,
            {
                "id": data_record.idempotency_key,
                "status": data_record.status,
                "expires_at": data_record.expiry_timestamp,
                "in_progress_until": data_record.in_progress_expiry_timestamp,
                "payload_hash": data_record.payload_hash,
                "now": time.time(),
            },
        )
        if written.rowcount == 0:
            raise IdempotencyItemAlreadyExistsError

    def _update_record(self, data_record: DataRecord) -> None:
        self._connection.execute(
            "UPDATE records SET data = ?, expires_at = ?, status = ? WHERE id = ?",
            [
                data_record.response_data,
                data_record.expiry_timestamp,
                data_record.status,
                data_record.idempotency_key,
            ],
        )

    def _delete_record(self, data_record: DataRecord) -> None:
        self._connection.execute("DELETE FROM records WHERE id = ?", [data_record.idempotency_key])


class LambdaContext:
    """Of an invocation that has this much time left, whenever it is asked."""

    def get_remaining_time_in_millis(self) -> int:
        return TIME_LEFT_MILLISECONDS


def run(stage: Stage) -> None:
    layer = SqlitePersistenceLayer(str(stage.folder / "idempotency.db"))
    config: Any = IdempotencyConfig(event_key_jmespath="id", **options_of(stage.order.setting))
    config.register_lambda_context(LambdaContext())

    @idempotent_function(data_keyword_argument="order", config=config, persistence_store=layer)
    def perform(order: dict[str, Any]) -> dict[str, JSON]:
        return stage.perform(order["tool"], order["arguments"])

    def call_tool(call: ToolCall) -> dict[str, JSON]:
        order = {"id": name_of_step(call.name), "tool": call.name, "arguments": dict(call.arguments)}
        answer = perform(order=order)
        return dict(json.loads(json.dumps(answer)))

    run_plan(stage, call_tool)


def options_of(setting: str) -> dict[str, Any]:
    if setting != "strictest":
        return {}
    return {"payload_validation_jmespath": "arguments", "raise_on_no_idempotency_key": True}
