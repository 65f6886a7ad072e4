// Package operator answers operators' methods: JSON documents about the cluster, its plan, and who
// may do what.
//
// The server checks the right, and runs ClusterMethods.Serve off the event loops. The status is
// made from the meta state of this instance and from what it observes. The plan is that of the
// governor that acts, and is fetched from the meta shard's leader; if none answers it is made here,
// and has no steps. Changes go through the governor.
package operator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// ClusterChanger is what operators' methods need of the cluster. The governor is one: its changes
// are decided in the meta shard, whichever instance is asked.
type ClusterChanger interface {
	State() *meta.State
	Explain() (governor.Explanation, error)
	Expel(ctx context.Context, instance uint64, force bool) (meta.Instance, error)
	Drain(ctx context.Context, instance uint64, undo bool) (meta.Instance, error)
	TransferMaster(ctx context.Context, shard, instance uint64) error
	SetWeight(ctx context.Context, replicaset uint64, weight uint32) error
	SetReplicationFactor(ctx context.Context, tier uint8, factor uint32) error
	SetShards(ctx context.Context, tier uint8, shards uint32) error
	RotateKeys(ctx context.Context, key uint64) error
	HoldUpgrade(ctx context.Context, hold bool) error
}

// maxWeight is the largest weight of a replicaset.
const maxWeight = 1_000_000

// ClusterMethods answers operators' methods on this instance.
type ClusterMethods struct {
	Self uint64
	ClusterChanger
	Auth *AuthMethods
	// what this instance sees of the cluster
	Observe     func(ctx context.Context) governor.Observation
	AskGovernor func(ctx context.Context) (plan []byte, err error) // asks the instance that governs
	// asks the instance that leads the shard
	Backup   func(ctx context.Context, shard uint64, request []byte) ([]byte, error)
	Top      func(in protocol.TopRequest, mayRead func(path string) bool) (protocol.Top, error)
	MayRead  func(path string) bool // of the caller
	AuditLog func(most int) (lines []string, err error)
}

// unlisted are members of documents that Subjects leaves out: secrets, and what is long.
var unlisted = []string{"secret", "hash", "keys", "ca"}

// Subjects are what a method is about, as its document says that nobody has checked yet: its short
// values, the beginnings of its longer texts and lists, and no secret. They are pairs for [audit.Fields]. A
// document with more members than any method knows is refused: none of them may hide another.
func Subjects(body []byte) (list []any, err error) {
	const most, longestKey, longest = 16, 64, protocol.MaxPathLen + 64
	var all map[string]any
	if json.Unmarshal(body, &all) != nil {
		return nil, nil // the method refuses it
	}
	if len(all) > most {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "the request has %d members; send up to %d", len(all), most)
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if len(key) > longestKey || slices.ContainsFunc(unlisted, func(o string) bool { return strings.EqualFold(key, o) }) {
			continue
		}
		v := all[key]
		if l, ok := v.([]any); ok {
			text, _ := json.Marshal(l) // what was decoded can be encoded
			v = string(text)
		}
		switch v := v.(type) {
		case string:
			if len(v) > longest {
				v = strings.ToValidUTF8(v[:longest], "")
			}
			list = append(list, "asked_"+key, v)
		case float64, bool:
			list = append(list, "asked_"+key, v)
		}
	}
	return list, nil
}

// Serve answers one method.
func (c *ClusterMethods) Serve(ctx context.Context, method string, body []byte) ([]byte, error) {
	var answer any
	var err error
	switch {
	case strings.HasPrefix(method, AuthPrefix):
		answer, err = c.Auth.Serve(ctx, method, body)
	default:
		answer, err = c.answer(ctx, method, body)
	}
	if raw, ok := answer.(json.RawMessage); ok || err != nil {
		return raw, err
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // six bytes for one would make answers too long that fit
	if err := e.Encode(answer); err != nil {
		return nil, protocol.Errorf(protocol.StatusInternal, "%v", err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte{'\n'}), nil
}

// answer answers one method about the cluster; with a json.RawMessage where it was made elsewhere.
func (c *ClusterMethods) answer(ctx context.Context, method string, body []byte) (answer any, err error) {
	switch method {
	case protocol.MethodStatus:
		answer = Status(c.Observe(ctx))
	case protocol.MethodHealth:
		answer = governor.Assess(c.Observe(ctx))
	case protocol.MethodPlan:
		return c.plan(ctx)
	case protocol.MethodTop:
		answer, err = decodeJSON(body, func(in protocol.TopRequest) (any, error) { return c.Top(in, c.MayRead) })
	case protocol.MethodAuditLog:
		answer, err = decodeJSON(body, c.auditLog)
	case protocol.MethodDrain:
		answer, err = change(ctx, c, body, func(in protocol.DrainRequest) (any, error) {
			return c.changeInstance(in.Instance, func(i uint64) error { return errOf(c.Drain(ctx, i, in.Undo)) })
		})
	case protocol.MethodExpel:
		answer, err = change(ctx, c, body, func(in protocol.ExpelRequest) (any, error) {
			return c.expel(ctx, in)
		})
	case protocol.MethodTransfer:
		answer, err = change(ctx, c, body, func(in protocol.TransferRequest) (any, error) {
			if _, err := c.changeInstance(in.Instance, func(i uint64) error {
				return c.TransferMaster(ctx, in.Shard, i)
			}); err != nil {
				return nil, err
			}
			state := c.State()
			x, _ := state.Shard(in.Shard)
			return clusterShard(state, &x, bucketsOf(state)[x.ID]), nil
		})
	case protocol.MethodWeight:
		answer, err = change(ctx, c, body, func(in protocol.WeightRequest) (any, error) { return c.weight(ctx, in) })
	case protocol.MethodReplicationFactor:
		answer, err = change(ctx, c, body, func(in protocol.ReplicationFactorRequest) (any, error) {
			return c.factor(ctx, in)
		})
	case protocol.MethodShards:
		answer, err = decodeJSON(body, func(in protocol.ShardsRequest) (any, error) { return c.shards(ctx, in) })
	case protocol.MethodSetShards:
		answer, err = change(ctx, c, body, func(in protocol.ShardsRequest) (any, error) { return c.setShards(ctx, in) })
	case protocol.MethodRotateKeys:
		answer, err = decodeJSON(body, func(in protocol.TicketKeyRequest) (any, error) {
			return c.rotateKeys(ctx, in)
		})
	case protocol.MethodUpgrade:
		answer, err = decodeJSON(body, func(in protocol.UpgradeRequest) (any, error) {
			if err := c.HoldUpgrade(ctx, in.Hold); err != nil {
				return nil, err
			}
			s := c.State()
			return protocol.Upgrade{Version: versionText(s.ClusterVersion()), Held: s.UpgradeHeld()}, nil
		})
	case protocol.MethodBackup:
		var in protocol.BackupRequest
		if bad := json.Unmarshal(body, &in); bad != nil {
			return nil, protocol.Errorf(protocol.StatusBadRequest, "the request is not the method's JSON document: %v", bad)
		}
		in.Shard = cmp.Or(in.Shard, meta.MetaShardID)
		return rawAnswer(c.Backup(ctx, in.Shard, body))
	default:
		err = protocol.Errorf(protocol.StatusUnsupported, "method %s is not known here; upgrade the older side", method)
	}
	return answer, err
}

func rawAnswer(body []byte, err error) (any, error) { return json.RawMessage(body), err }

// decodeJSON reads a method's request. Fields that are not known are passed over: they are a newer
// client's.
func decodeJSON[T any](body []byte, f func(in T) (any, error)) (any, error) {
	var in T
	if len(body) > 0 {
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, protocol.Errorf(protocol.StatusBadRequest, "the request is not the method's JSON document: %v", err)
		}
	}
	return f(in)
}

// change is decodeJSON for a method that changes the cluster. What the request names is looked for
// in a map that a majority has confirmed. Without one it may be in the cluster all the same.
func change[T any](ctx context.Context, d *ClusterMethods, body []byte, f func(in T) (any, error)) (any, error) {
	return decodeJSON(body, func(in T) (any, error) {
		confirmed := d.Observe(ctx).Confirmed
		answer, err := f(in)
		if !confirmed && errors.Is(err, protocol.StatusNotFound) {
			err = protocol.Errorf(protocol.StatusUnavailable,
				"the meta shard does not answer, and by the map that this instance has, %v; ask again, or ask another instance",
				err)
		}
		return answer, err
	})
}

func errOf(_ meta.Instance, err error) error { return err }

// changeInstance does something about an instance, and answers how it stands then.
func (c *ClusterMethods) changeInstance(name string, f func(instance uint64) error) (any, error) {
	i, err := governor.FindInstance(c.State(), name)
	if err == nil {
		err = f(i.ID)
	}
	if err != nil {
		return nil, err
	}
	state := c.State()
	i, _ = state.Instance(i.ID)
	return clusterInstance(state, &i), nil
}

// expel removes an instance from the cluster. Expelling it again changes nothing, unless another
// instance has its name by now.
func (c *ClusterMethods) expel(ctx context.Context, in protocol.ExpelRequest) (any, error) {
	state := c.State()
	if _, err := governor.FindInstance(state, in.Instance); err != nil && c.Observe(ctx).Confirmed {
		for _, i := range slices.Backward(state.Instances()) {
			if i.Name == in.Instance && i.Expelled() {
				return clusterInstance(state, &i), nil
			}
		}
	}
	if err := requireReason(in.Force, in.Reason); err != nil {
		return nil, err
	}
	return c.changeInstance(in.Instance, func(i uint64) error { return errOf(c.Expel(ctx, i, in.Force)) })
}

// rotateKeys replaces the ticket key that the request names. Without one it answers the current
// key, which a majority confirms: a key of the past would make the rotation that follows change
// nothing.
func (c *ClusterMethods) rotateKeys(ctx context.Context, in protocol.TicketKeyRequest) (any, error) {
	if in.Current == 0 {
		o := c.Observe(ctx)
		if !o.Confirmed {
			return nil, protocol.Errorf(protocol.StatusUnavailable, "the meta shard does not answer; ask again")
		}
		current, _ := o.State.Keys()
		return protocol.TicketKey{ID: current.ID}, nil
	}
	if err := c.RotateKeys(ctx, in.Current); err != nil {
		return nil, err
	}
	current, _ := c.State().Keys()
	return protocol.TicketKey{ID: current.ID}, nil
}

func (c *ClusterMethods) weight(ctx context.Context, in protocol.WeightRequest) (any, error) {
	if !(in.Weight >= 0 && in.Weight <= maxWeight) {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "weight is %v; choose 0 to %d", in.Weight, maxWeight)
	}
	set, err := governor.FindReplicaset(c.State(), in.Replicaset)
	if err == nil {
		err = c.SetWeight(ctx, set.ID, uint32(math.Round(in.Weight*1000)))
	}
	if err != nil {
		return nil, err
	}
	state := c.State()
	set, _ = state.Replicaset(set.ID)
	return clusterReplicaset(state, &set, bucketsOf(state)), nil
}

func (c *ClusterMethods) factor(ctx context.Context, in protocol.ReplicationFactorRequest) (any, error) {
	t, ok := c.State().TierByName(in.Tier)
	if !ok {
		return nil, protocol.Errorf(protocol.StatusNotFound, "there is no tier %q; the cluster's status lists them",
			in.Tier)
	}
	if in.Factor < t.ReplicationFactor && in.Factor > 0 && !in.Force { // 0 is refused below
		return nil, protocol.Errorf(protocol.StatusPreconditionFailed,
			"tier %s has replication factor %d, and %d would keep fewer copies of everything; lower it by force and with a reason",
			t.Name, t.ReplicationFactor, in.Factor)
	}
	if err := requireReason(in.Force, in.Reason); err != nil {
		return nil, err
	}
	if err := c.SetReplicationFactor(ctx, t.ID, in.Factor); err != nil {
		return nil, err
	}
	t, _ = c.State().Tier(t.ID)
	return clusterTier(&t), nil
}

// requireReason refuses what is asked for by force without a reason.
func requireReason(force bool, reason string) error {
	if force && strings.TrimSpace(reason) == "" {
		return protocol.Errorf(protocol.StatusBadRequest, "force needs a reason: say why, for the records")
	}
	return nil
}

// maxShards is the largest number of data shards of a replicaset.
const maxShards = 64

// tierOf finds the tier that a request names, by default that of new coordination nodes, and checks
// the number of shards.
func (c *ClusterMethods) tierOf(in *protocol.ShardsRequest) (meta.Tier, error) {
	state := c.State()
	t, ok := state.TierByName(in.Tier)
	if in.Tier == "" {
		t, ok = state.Tier(state.DataTier())
	}
	switch {
	case !ok:
		return t, protocol.Errorf(protocol.StatusNotFound, "there is no tier %q; the cluster's status lists them", in.Tier)
	case in.Shards > maxShards:
		return t, protocol.Errorf(protocol.StatusBadRequest, "%d shards per replicaset; choose 1 to %d", in.Shards,
			maxShards)
	}
	return t, nil
}

// shards is what a tier has, and what becomes of it.
func (c *ClusterMethods) shards(ctx context.Context, in protocol.ShardsRequest) (any, error) {
	t, err := c.tierOf(&in)
	if err != nil {
		return nil, err
	}
	v := c.Observe(ctx).View
	shards := t.ShardsPerReplicaset
	if now, ok := v.State.Tier(t.ID); ok {
		t = now
	}
	if in.Shards != 0 { // what a tier has is shown even where no number could be chosen
		shards = in.Shards
		if err := t.CheckShards(v.State, shards); err != nil {
			return nil, err
		}
	}
	return governor.ShardCounts(v, &t, shards), nil
}

func (c *ClusterMethods) setShards(ctx context.Context, in protocol.ShardsRequest) (any, error) {
	t, err := c.tierOf(&in)
	if err == nil {
		err = c.SetShards(ctx, t.ID, in.Shards)
	}
	if err != nil {
		return nil, err
	}
	in.Shards = 0
	return c.shards(ctx, in)
}

// planTimeout bounds the question to the instance that governs.
const planTimeout = 2 * time.Second

// plan is that of the instance that governs. Without one, or while it cannot be asked, nothing is
// planned, and what is not as it should be is said as it looks from here.
func (c *ClusterMethods) plan(ctx context.Context) (any, error) {
	if e, err := c.Explain(); err == nil {
		return c.planDocument(c.Observe(ctx), e), nil
	}
	o := c.Observe(ctx)
	why := "the meta shard does not answer; an election may be under way"
	if o.Confirmed && o.Leader != 0 && o.Leader != c.Self {
		ask, cancel := context.WithTimeout(ctx, planTimeout)
		body, err := c.AskGovernor(ask)
		cancel()
		if err == nil {
			return json.RawMessage(body), nil
		}
		why = fmt.Sprintf("%s, which leads the meta shard, does not tell its plan: %v", instanceName(o.State, o.Leader),
			err)
	}
	o.Leader = 0
	e := governor.Explanation{Waits: governor.Deviations(o.View)}
	if !slices.ContainsFunc(e.Waits, func(w governor.Wait) bool { return w.What == governor.WaitForGovernor }) {
		e.Waits = append(e.Waits, governor.Wait{What: governor.WaitForGovernor, Why: why, Kind: governor.Underway})
	}
	return c.planDocument(o, e), nil
}

// planDocument is the document of a plan.
func (c *ClusterMethods) planDocument(o governor.Observation, e governor.Explanation) protocol.ClusterPlan {
	plan := protocol.ClusterPlan{
		AnsweredBy: instanceName(o.State, c.Self), Leader: instanceName(o.State, o.Leader),
		Steps: append([]string{}, e.Next...), Waits: []protocol.ClusterWait{}, Health: governor.Assess(o),
	}
	for _, w := range e.Waits {
		plan.Waits = append(plan.Waits, protocol.ClusterWait{What: w.What, Why: w.Why, Kind: w.Kind.String()})
	}
	return plan
}

// auditLog answers with the end of this instance's audit log.
func (c *ClusterMethods) auditLog(in protocol.AuditLogRequest) (any, error) {
	most := cmp.Or(in.Lines, protocol.DefaultAuditLines)
	if most < 1 || most > protocol.MaxAuditLines {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "%d lines are asked for; choose 1 to %d",
			most, protocol.MaxAuditLines)
	}
	lines, err := c.AuditLog(most)
	switch {
	case errors.Is(err, audit.ErrOff):
		err = protocol.Errorf(protocol.StatusNotFound, "%v", err)
	case errors.Is(err, audit.ErrNoFile):
		err = protocol.Errorf(protocol.StatusPreconditionFailed, "%v", err)
	}
	return protocol.AuditLog{ID: c.Self, Lines: lines}, err
}
