# Acquires units of a resource with YDB's Python SDK, and prints what each kind of call sees:
#
#	pip install ydb
#	python3 limit.py grpc://127.0.0.1:2136 /local/demo
#
# The node has the resources fast, slow, and tree with a child. The SDK has no calls of its own for rate
# limits; its driver makes them, with the messages that come with it.
import sys

import ydb
from ydb._grpc.common import ydb_rate_limiter_v1_pb2_grpc as rate_limiter
from ydb._grpc.common.protos import ydb_rate_limiter_pb2 as messages

endpoint, node = sys.argv[1:3]


def acquire(driver, resource, operation_timeout=None, cancel_after=None, timeout=60, path=node, **units):
    request = messages.AcquireResourceRequest(coordination_node_path=path, resource_path=resource, **units)
    settings = ydb.BaseRequestSettings().with_timeout(timeout)
    if operation_timeout:
        settings = settings.with_operation_timeout(operation_timeout)
    if cancel_after:
        settings = settings.with_cancel_after(cancel_after)
    answer = driver(request, rate_limiter.RateLimiterServiceStub, "AcquireResource", None, settings)
    ydb.issues._process_response(answer.operation)


def see(what, *args, **options):
    try:
        acquire(driver, *args, **options)
        print(what, "ok", sep=": ")
    except ydb.issues.Error as e:
        print(what, ydb.issues.StatusCode(e.status).name, sep=": ")


with ydb.Driver(endpoint=endpoint, database="/local") as driver:
    driver.wait(timeout=30, fail_fast=True)
    for _ in range(3):
        see("required", "fast", required=50)
    see("nothing", "fast", required=0)
    see("used", "slow", used=2)
    see("after what was used, a timeout", "slow", required=1, operation_timeout=0.3)
    see("cancelled", "slow", required=1, operation_timeout=5, cancel_after=0.2)
    see("given up by the client", "slow", required=1, timeout=0.3)
    see("more than the burst", "fast", required=1001)
    see("too much for any", "fast", required=2**64 - 1)
    see("no units", "fast")
    see("a parent", "tree", required=1)
    see("no resource", "none", required=1)
    see("a bad name", "a b", required=1)
    see("no node", "fast", required=1, path=node + "-none")
    see("again", "fast", required=1)
