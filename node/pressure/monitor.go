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
	// ReclaimContainers removes unused leftovers of containers that have ended, including logs, and returns how many bytes it freed.
	ReclaimContainers(ctx context.Context) (int64, error)
	// ReclaimImages removes unused images until so many bytes are free, and returns how many it freed.
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
	evicting string // uid of the pod that stop was requested last
	since    time.Time
	signal   Signal            // that it was told for
	used     int64             // what it had of that
	vain     Signal            // for which nobody can be evicted, as was said
	kept     map[string]string // why what could be removed was not, as was said

	mu sync.Mutex
	// All below is guarded by mu.
	conditions []corev1.NodeConditionType
	changed    map[corev1.NodeConditionType]time.Time
	listeners  map[chan struct{}]struct{}
}

// New returns a monitor. It does no I/O.
func New(cfg Config, s Sensors, n Node, log *slog.Logger, now func() time.Time) *Monitor {
	return &Monitor{cfg: cfg, sensors: s, node: n, log: log, now: now, seen: Observations{}, kept: map[string]string{}, changed: map[corev1.NodeConditionType]time.Time{}, listeners: map[chan struct{}]struct{}{}}
}

const (
	// busyPeriod is the interval of checks while a pod is being stopped.
	busyPeriod = time.Second
	// cleanupPatience is the time that an evicted pod may take beyond its grace period before the next one is evicted, as in a kubelet.
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

// Look checks once, and acts on the result. Run calls it; the daemon calls it once before it starts anything.
func (m *Monitor) Look(ctx context.Context) {
	v := m.judge()
	if v.Reclaim == nil {
		m.evicting, m.vain = "", ""
		return
	}
	if m.evicting != "" && m.stops(ctx, v.Reclaim) {
		return
	}
	if m.evicting == "" && m.vain == "" {
		m.node.Tell(corev1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim "+v.Reclaim.Signal.Resource())
	}
	m.evicting = ""
	if m.reclaimed(ctx, &v) {
		return
	}
	m.evict(ctx, v.Reclaim, v.Level)
}

// stops reports whether the last evicted pod still has more than half of what it used, and is within its time.
func (m *Monitor) stops(ctx context.Context, t *Threshold) bool {
	patience := cleanupPatience
	if t.Soft {
		patience += m.cfg.MaxPodGrace
	}
	if m.now().Sub(m.since) >= patience {
		return false
	}
	pods, ok := m.pods(ctx, t)
	if !ok {
		return true
	}
	return slices.ContainsFunc(pods, func(p Pod) bool {
		left, _ := p.use(m.signal)
		return p.UID == m.evicting && left > m.used/2
	})
}

func (m *Monitor) pods(ctx context.Context, t *Threshold) ([]Pod, bool) {
	pods, err := m.node.Pods(ctx, t.Signal.Condition() == corev1.NodeDiskPressure)
	if err != nil {
		m.log.Debug("cannot determine which pods to evict", "err", err)
	}
	return pods, err == nil
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

// reclaimed removes what is unused, first leftovers of containers, then images, and reports whether that was enough.
func (m *Monitor) reclaimed(ctx context.Context, v *Verdict) bool {
	if v.Reclaim.Signal.Condition() != corev1.NodeDiskPressure {
		return false
	}
	freed, err := m.node.ReclaimContainers(ctx)
	m.freed(ctx, "leftovers of exited containers", freed, err)
	if *v = m.judge(); v.Reclaim == nil || v.Reclaim.Signal.Condition() != corev1.NodeDiskPressure {
		return v.Reclaim == nil
	}
	if m.apart(v.Reclaim.Signal) {
		return false
	}
	bytes := v.Reclaim.missing(v.Level)
	if v.Reclaim.Signal.Resource() == "inodes" {
		bytes = 1 << 62 // nobody knows how many they have: all that are not needed
	}
	freed, err = m.node.ReclaimImages(ctx, bytes)
	m.freed(ctx, "unused images", freed, err)
	*v = m.judge()
	return v.Reclaim == nil
}

func (m *Monitor) freed(ctx context.Context, what string, bytes int64, err error) {
	if err == nil {
		delete(m.kept, what)
	} else if ctx.Err() == nil && m.kept[what] != err.Error() { // once, and not at each look: who writes the log may need the disk
		m.kept[what] = err.Error()
		m.log.Warn("disk space is low; cannot remove all "+what, "err", err)
	}
	if bytes > 0 {
		m.log.Info("disk space is low: removed "+what, "bytes", bytes)
	}
}

// apart reports whether images are on another file system than the one of a signal.
func (m *Monitor) apart(s Signal) bool {
	node, ok1 := m.seen[NodeFsAvailable]
	image, ok2 := m.seen[ImageFsAvailable]
	return (s == NodeFsAvailable || s == NodeFsInodesFree) && ok1 && ok2 && node.Capacity != image.Capacity
}

// evict has one pod stopped.
func (m *Monitor) evict(ctx context.Context, t *Threshold, l Level) {
	pods, ok := m.pods(ctx, t)
	if !ok {
		return
	}
	p := Choose(t, l, pods, &m.cfg)
	if p == nil {
		if m.vain != t.Signal {
			m.node.Tell(corev1.EventTypeWarning, "EvictionInVain", fmt.Sprintf("%s is %s, below %s, and evicting pods would not help", t.Signal, quantity(t.Signal, l.Available), amount(t, l)))
		}
		m.vain = t.Signal
		return
	}
	o := OrderFor(p, t, l, &m.cfg)
	m.log.Warn("evicting pod", "pod", p.Key.String(), "signal", string(t.Signal), "message", o.Message)
	m.node.Evict(p.Key, o)
	m.evicting, m.since, m.signal, m.vain = p.UID, m.now(), t.Signal, ""
	m.used, _ = p.use(t.Signal)
}

// publish stores the conditions, and notifies of those that have changed.
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

// Unwatched are the conditions of a machine on which nothing is watched: no pod is ever evicted from it, nor kept from it.
func Unwatched() []corev1.NodeCondition {
	var all []corev1.NodeCondition
	for _, c := range conditions() {
		all = append(all, corev1.NodeCondition{Type: c, Status: corev1.ConditionFalse, Reason: "NotWatched", Message: "there are no eviction thresholds"})
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
