package pressure

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
)

// Sensors read what there is.
type Sensors interface {
	// Read must be cheap: it is called every few seconds for ever. What cannot be read is left out.
	Read(into Observations)
	// Stalls sends to a channel of size one when tasks wait for memory, until ctx ends; it returns at once where the kernel does not tell.
	Stalls(ctx context.Context, wake chan<- struct{})
}

// Node is what the monitor acts on.
type Node interface {
	// Pods returns those that run, with what they use; disks: of the disk, too, which takes long.
	Pods(ctx context.Context, disks bool) ([]Pod, error)
	// Evict has a pod stopped.
	Evict(key manifests.Key, o Order)
	// ReclaimContainers removes what is left of containers that have ended and are not needed.
	ReclaimContainers(ctx context.Context) error
	// ReclaimImages removes images that nobody needs, until so many bytes are free, and returns how many came free.
	ReclaimImages(ctx context.Context, bytes int64) (int64, error)
	// Tell records an event of the node.
	Tell(eventType, reason, message string)
}

// Monitor watches what there is too little of. Its methods may be called from any goroutine.
type Monitor struct {
	cfg     Config
	sensors Sensors
	node    Node
	log     *slog.Logger
	now     func() time.Time

	// Those of the goroutine of Run.
	state    State
	seen     Observations
	evicting string // uid of the pod that was told to stop last
	since    time.Time
	vain     Signal // for which nobody can be evicted, as was said

	mu sync.Mutex
	// All below is guarded by mu.
	conditions []corev1.NodeConditionType
	changed    map[corev1.NodeConditionType]time.Time
	listeners  map[chan struct{}]struct{}
}

// New returns a monitor. It does no I/O.
func New(cfg Config, s Sensors, n Node, log *slog.Logger, now func() time.Time) *Monitor {
	return &Monitor{cfg: cfg, sensors: s, node: n, log: log, now: now, seen: Observations{}, changed: map[corev1.NodeConditionType]time.Time{}, listeners: map[chan struct{}]struct{}{}}
}

const (
	// busyPeriod is how often is looked while a pod is being stopped.
	busyPeriod = time.Second
	// cleanupPatience is how long a pod that was told to stop may take before another one has to, kubelet's.
	cleanupPatience = 30 * time.Second
)

// Run watches until ctx ends.
func (m *Monitor) Run(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	var stalls sync.WaitGroup
	stalls.Go(func() { m.sensors.Stalls(ctx, wake) })
	defer stalls.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-timer.C:
		}
		m.Look(ctx)
		next := m.cfg.Period
		if m.evicting != "" {
			next = min(next, busyPeriod)
		}
		timer.Reset(next)
	}
}

// Look looks once, and does what follows. It is called by Run, and once before it by who wants to know before anything starts.
func (m *Monitor) Look(ctx context.Context) {
	v := m.judge()
	if v.Reclaim == nil {
		m.evicting, m.vain = "", ""
		return
	}
	if m.evicting == "" && m.vain == "" {
		m.node.Tell(corev1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim "+v.Reclaim.Signal.Resource())
	}
	if m.evicting == "" && m.reclaimed(ctx, &v) {
		return
	}
	m.evict(ctx, v.Reclaim, v.Level)
}

// judge reads what there is and publishes the conditions.
func (m *Monitor) judge() Verdict {
	clear(m.seen)
	m.sensors.Read(m.seen)
	var v Verdict
	m.state, v = Next(m.now(), m.state, &m.cfg, m.seen)
	m.publish(v.Conditions)
	return v
}

// reclaimed gives back what nobody needs, and says whether that was enough.
func (m *Monitor) reclaimed(ctx context.Context, v *Verdict) bool {
	if v.Reclaim.Signal.Condition() != corev1.NodeDiskPressure {
		return false
	}
	if err := m.node.ReclaimContainers(ctx); err != nil && ctx.Err() == nil {
		m.log.Warn("containers that have ended cannot be removed", "err", err)
	}
	bytes := v.Reclaim.missing(v.Level)
	if v.Reclaim.Signal.Resource() == "inodes" {
		bytes = 1 << 62 // nobody knows how many they have: all that are not needed
	}
	freed, err := m.node.ReclaimImages(ctx, bytes)
	if err != nil && ctx.Err() == nil {
		m.log.Warn("images cannot be removed", "err", err)
	}
	if freed > 0 {
		m.log.Info("images that nobody needs were removed", "bytes", freed)
	}
	*v = m.judge()
	return v.Reclaim == nil
}

// evict has one pod stopped, unless one is on its way out.
func (m *Monitor) evict(ctx context.Context, t *Threshold, l Level) {
	pods, err := m.node.Pods(ctx, t.Signal.Condition() == corev1.NodeDiskPressure)
	if err != nil {
		m.log.Debug("it is not known which pods to evict", "err", err)
		return
	}
	if m.evicting != "" && m.now().Sub(m.since) < cleanupPatience && slices.ContainsFunc(pods, func(p Pod) bool { return p.UID == m.evicting }) {
		return
	}
	p := Choose(t, l, pods, &m.cfg)
	if p == nil {
		if m.vain != t.Signal {
			m.node.Tell(corev1.EventTypeWarning, "EvictionInVain", fmt.Sprintf("%s is %s, less than %s, and there is no pod whose eviction would help", t.Signal, quantity(t.Signal, l.Available), amount(t, l)))
		}
		m.evicting, m.vain = "", t.Signal
		return
	}
	o := OrderFor(p, t, l, &m.cfg)
	m.log.Warn("pod is evicted", "pod", p.Key.String(), "signal", string(t.Signal), "message", o.Message)
	m.node.Evict(p.Key, o)
	m.evicting, m.since, m.vain = p.UID, m.now(), ""
}

// publish stores the conditions, and tells of those that have changed.
func (m *Monitor) publish(now []corev1.NodeConditionType) {
	m.mu.Lock()
	was := m.conditions
	same := slices.Equal(was, now)
	m.conditions = now
	for _, c := range conditions() {
		if slices.Contains(was, c) != slices.Contains(now, c) || m.changed[c].IsZero() {
			m.changed[c] = m.now()
		}
	}
	if !same {
		for l := range m.listeners {
			select {
			case l <- struct{}{}:
			default:
			}
		}
	}
	m.mu.Unlock()
	if same {
		return
	}
	for _, c := range conditions() {
		if is := slices.Contains(now, c); is != slices.Contains(was, c) {
			m.log.Warn("condition of this machine", "condition", string(c), "is", is)
			m.node.Tell(corev1.EventTypeNormal, eventOf(c, is), "Node status is now: "+eventOf(c, is))
		}
	}
}

// Pressures are the conditions that are true. The slice must not be changed.
func (m *Monitor) Pressures() []corev1.NodeConditionType {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conditions
}

// Conditions are those of the node, with the words of a kubelet.
func (m *Monitor) Conditions() []corev1.NodeCondition {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := metav1.NewTime(m.now())
	var all []corev1.NodeCondition
	for _, c := range conditions() {
		yes, no := words(c)
		n := corev1.NodeCondition{Type: c, Status: corev1.ConditionFalse, Reason: no[0], Message: no[1], LastHeartbeatTime: now, LastTransitionTime: metav1.NewTime(m.changed[c])}
		if slices.Contains(m.conditions, c) {
			n.Status, n.Reason, n.Message = corev1.ConditionTrue, yes[0], yes[1]
		}
		all = append(all, n)
	}
	return all
}

// Subscribe returns a channel that gets a value after each change of the conditions, and a function that ends the subscription.
func (m *Monitor) Subscribe() (changed <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listeners[c] = struct{}{}
	return c, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.listeners, c)
	}
}
