package monitoring

import m "github.com/signalbox-dev/signalbox/server/metrics"

// overview is the first page: requests, errors, durations, and the machine.
func overview() dashboard {
	return dashboard{
		uid: "signalbox-overview", title: "signalbox: overview", about: "Requests, errors and durations; processor, memory and disk of each instance.",
		rows: []row{
			{"State", []panel{
				{title: "Ready", help: "1: the instance serves clients. 0: /readyz says why not.", unit: unitNone, stat: true, queries: []query{{least(m.Ready, "instance"), "{{instance}}"}}},
				{title: "Version", help: "Instances of a cluster may have two neighbouring minor versions.", unit: unitNone, stat: true, queries: []query{{now(m.BuildInfo, "version"), "{{version}}"}}},
				{title: "Sessions", help: "Sessions of the cluster.", unit: unitNone, stat: true, queries: []query{{now(m.Sessions), "sessions"}}},
			}},
			{"Requests", []panel{
				{title: "Requests by kind", help: "Replies of each kind of request.", unit: unitPerSec, queries: []query{{perSecond(m.Requests, "kind"), "{{kind}}"}}},
				{title: "Errors by status", help: "Replies that are not OK. NOT_FOUND and PRECONDITION_FAILED may be part of a client's work; OVERLOADED and UNAVAILABLE are not.", unit: unitPerSec,
					queries: []query{{orZero(perSecondOf(m.Requests, []string{`status!="OK"`}, "status")), "{{status}}"}}},
				{title: "Duration of requests", help: "From the read of a request to its reply. A queued acquire is answered when it is queued.", unit: unitSeconds,
					queries: []query{{quantile(0.5, m.RequestSeconds), "p50"}, {quantile(0.99, m.RequestSeconds), "p99"}}},
				{title: "Duration by kind, p99", help: "Writes wait for the log of a majority; most reads wait for nothing.", unit: unitSeconds,
					queries: []query{{quantile(0.99, m.RequestSeconds, "kind"), "{{kind}}"}}},
				{title: "Refusals", help: "Requests refused because memory is short, and because a quota of a node is used up.", unit: unitPerSec,
					queries: []query{{perSecond(m.MemoryRefusals), "memory"}, {perSecond(m.NodeRefused, "quota"), "quota of {{quota}}"}, {perSecond(m.ShardOverloaded), "log behind"}}},
				{title: "Bytes of clients", help: "Bytes that clients send and receive.", unit: unitByteSec,
					queries: []query{{perSecond(m.ReceivedBytes), "received"}, {perSecond(m.SentBytes), "sent"}}},
			}},
			{"Connections", []panel{
				{title: "Connections", help: "Open connections of clients, by listener.", unit: unitNone, queries: []query{{now(m.Connections, "instance", "listener"), "{{instance}} {{listener}}"}, {most(m.ConnectionsLimit), "limit"}}},
				{title: "New and rejected", help: "A client that reconnects often, or a limit that is too low.", unit: unitPerSec,
					queries: []query{{perSecond(m.ConnectionsAccepted), "accepted"}, {perSecond(m.ConnectionsRejected), "rejected"}, {perSecond(m.AuthFailures), "wrong credentials"}, {perSecond(m.HandshakesFailed), "failed handshakes"}}},
				{title: "Closed by the server", help: "Why the server closed connections.", unit: unitPerSec, queries: []query{{perSecond(m.ConnectionsClosed, "reason"), "{{reason}}"}}},
			}},
			{"Machine", []panel{
				{title: "Processor", help: "Cores that the process uses, and of them those of the garbage collector.", unit: unitNone,
					queries: []query{{perSecond(m.ProcessCPU, "instance"), "{{instance}}"}, {perSecond(m.GoCollectorCPU, "instance"), "{{instance}} collector"}}},
				{title: "Memory", help: "Resident memory, and the live heap that the limit counts.", unit: unitBytes,
					queries: []query{{most(m.ProcessResident, "instance"), "{{instance}} resident"}, {most(m.MemoryLive, "instance"), "{{instance}} live"}, {most(m.MemoryLimit, "instance"), "{{instance}} limit"}}},
				{title: "Disk free", help: "Below 10 % of free space, at most 512 MiB, an instance hands over and ends.", unit: unitRatio,
					queries: []query{{least(m.DiskFree, "instance") + " / " + least(m.DiskSize, "instance"), "{{instance}}"}}},
				{title: "Write to the log, with fsync", help: "Every acknowledged write waits for it.", unit: unitSeconds,
					queries: []query{{quantile(0.5, m.LogWriteSeconds, "instance"), "{{instance}} p50"}, {quantile(0.99, m.LogWriteSeconds, "instance"), "{{instance}} p99"}}},
				{title: "Lag of event loops, p99", help: "How late an event loop runs: the processor is full.", unit: unitSeconds, queries: []query{{quantile(0.99, m.LoopLag, "instance"), "{{instance}}"}}},
				{title: "Open files and goroutines", help: "Both rise with the connections.", unit: unitNone,
					queries: []query{{most(m.ProcessOpenFiles, "instance"), "{{instance}} files"}, {most(m.ProcessMaxFiles, "instance"), "{{instance}} limit of files"}, {most(m.GoGoroutines, "instance"), "{{instance}} goroutines"}}},
			}},
		},
	}
}
