#!/bin/sh
# Prometheus beside the cluster of `make cluster`, in the foreground, with the alert rules: Ctrl-C stops it. Grafana, if there is one, imports the
# dashboards of this folder and takes this Prometheus as its data source.
#
#   PROMETHEUS        the program (default prometheus; it is in Debian's package prometheus)
#   PROMETHEUS_DIR    folder of its data and its configuration (default ./signalbox-data/prometheus)
#   PROMETHEUS_PORT   its port on 127.0.0.1 (default 9090)
#   PROMETHEUS_EVERY  how often it scrapes and evaluates the rules (default 5s)
#   CLUSTER_PORT      first port of the cluster (default 7170)
set -eu
bin=${PROMETHEUS:-prometheus}
dir=${PROMETHEUS_DIR:-./signalbox-data/prometheus}
port=${PROMETHEUS_PORT:-9090}
every=${PROMETHEUS_EVERY:-5s}
cluster=${CLUSTER_PORT:-7170}
here=$(cd "$(dirname "$0")" && pwd)

command -v "$bin" >/dev/null || { echo "there is no $bin: install Debian's package prometheus, or set PROMETHEUS" >&2; exit 1; }
umask 077
mkdir -p "$dir"
cat >"$dir/prometheus.yml" <<YAML
global: {scrape_interval: $every, evaluation_interval: $every}
rule_files: ["$here/alerts.yml"]
scrape_configs:
  - job_name: signalbox
    static_configs:
      - targets: ["127.0.0.1:$((cluster + 2))", "127.0.0.1:$((cluster + 5))", "127.0.0.1:$((cluster + 8))"]
YAML
echo "Prometheus is on http://127.0.0.1:$port (see /alerts and /targets); the dashboards for Grafana are in $here."
exec "$bin" --config.file="$dir/prometheus.yml" --storage.tsdb.path="$dir/data" --web.listen-address="127.0.0.1:$port" --log.level=warn
