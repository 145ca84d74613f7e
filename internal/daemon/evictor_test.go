package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/daemontest"
	"monopod/node/budget"
	"monopod/node/capacity"
	"monopod/node/pressure"
	"monopod/runner/runtimetest"
	"monopod/runner/spec/limits"
)

// sensors observe how much of the disk is free.
type sensors struct{ free int64 }

func (s *sensors) Read(into pressure.Observations) {
	into[pressure.NodeFsAvailable] = pressure.Level{Available: s.free, Capacity: 100}
}

func (*sensors) Stalls(context.Context, chan<- struct{}) {}

// short returns an evictor for a core whose disk is full below ten bytes.
func short(c *core, s *sensors) *evictor {
	e := &evictor{core: c}
	cfg := pressure.Config{Thresholds: []pressure.Threshold{{Signal: pressure.NodeFsAvailable, Amount: capacity.Amount{Share: 0.1}}}}
	e.monitor = pressure.New(cfg, s, e, c.deps.Log, time.Now)
	return e
}

func TestPodsAreHeldBackWhileTheMachineIsUnderPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newTestCore(t, runtimetest.NewFake()), &sensors{free: 50}
		e := short(c, s)
		if _, err := e.Pods(t.Context(), false); err == nil {
			t.Error("all pods are known before any was looked at")
		}
		e.Evict(runtimetest.KeyOf("web"), pressure.Order{}) // no runtime is open
		start(t, c, &machineParts{evictor: e})
		publish(c, servingPod("web"))
		s.free = 5
		e.monitor.Look(t.Context())
		e.hold()
		publish(c, servingPod("web"), servingPod("late"))
		if got := phases(c); got != "late Pending Evicted, web Running" {
			t.Errorf("under pressure: %s", got)
		}
		if all := e.conditions(); !slices.ContainsFunc(all, func(n corev1.NodeCondition) bool {
			return n.Type == corev1.NodeDiskPressure && n.Status == corev1.ConditionTrue
		}) {
			t.Errorf("conditions: %+v", all)
		}
		e.Evict(runtimetest.KeyOf("web"), pressure.Order{UID: "the one before", Signal: pressure.NodeFsAvailable})
		all, _ := c.state.Statuses()
		e.Evict(runtimetest.KeyOf("web"), pressure.Order{UID: string(all[1].Pod.UID), Signal: pressure.NodeFsAvailable, Message: "no space", Grace: time.Second})
		synctest.Wait()
		if got := phases(c); !strings.Contains(got, "web Failed Evicted") {
			t.Errorf("evicted: %s", got)
		}
		if freed, err := e.ReclaimContainers(t.Context()); freed != 0 || err != nil {
			t.Errorf("%d, %v", freed, err)
		}
	})
}

func TestWithoutThresholdsOrCapacityNothingIsLimited(t *testing.T) {
	c := newTestCore(t, nil)
	m := &machineParts{}
	if err := m.measure(c); err != nil || m.resources != nil || m.evictor != nil || m.resources.room() != nil || m.pressure() != nil {
		t.Errorf("%+v, %v", m, err)
	}
	m.evictor.attach(nil, nil)() // does nothing
	if e, err := newEvictor(c, limits.AllPods{}); err != nil || e == nil {
		t.Errorf("a kubelet has thresholds unless they are switched off: %v, %v", e, err)
	}
	lost := errors.New("no /proc/meminfo")
	c.deps.Machine.Capacity = func(string) (capacity.Machine, error) { return capacity.Machine{}, lost }
	if err := m.measure(c); !errors.Is(err, lost) {
		t.Errorf("error %v", err)
	}
}

func TestPodsMayRequestWhatIsNotReserved(t *testing.T) {
	c := newTestCore(t, nil)
	var asked string
	c.deps.Machine.Capacity = func(storage string) (capacity.Machine, error) {
		asked = storage
		return capacity.Machine{MilliCPU: 4000, Memory: 8 << 30, Storage: 100 << 30, PIDs: 1000}, nil
	}
	c.cfg.SystemReserved, c.cfg.EvictionHard, c.cfg.MaxPods = map[string]string{"memory": "1Gi", "cpu": "500m"}, map[string]string{"memory.available": "1Gi"}, 7
	m := &machineParts{}
	if err := m.measure(c); err != nil || asked != c.cfg.RootDirectory || m.evictor == nil {
		t.Fatalf("%+v, %v; storage of %s", m, err, asked)
	}
	whole, left := m.resources.Capacity(), m.resources.Allocatable()
	if whole.Memory().Value() != 8<<30 || left.Memory().Value() != 6<<30 || left.Cpu().MilliValue() != 3500 || left.Pods().Value() != 7 {
		t.Errorf("capacity %v, allocatable %v", whole, left)
	}
	if m.resources.room() == nil {
		t.Error("pods are not limited")
	}
	c.cfg.SystemReserved = map[string]string{"memory": "much"}
	if err := m.measure(c); err == nil {
		t.Error("a reservation that is no amount is accepted")
	}
}

func TestImagesOfAnExternalContainerdAreElsewhere(t *testing.T) {
	for endpoint, want := range map[string]string{"": "/r", "unix:///run/c.sock": "/var/lib/containerd"} {
		if got := imageDirectory(&config.Config{RootDirectory: "/r", ContainerRuntimeEndpoint: endpoint}); got != want {
			t.Errorf("%q: %s", endpoint, got)
		}
	}
}

func TestPodsDoNotFindEachOtherByNameOnAForeignNetwork(t *testing.T) {
	for want, answer := range map[string]error{"the CNI configuration of the host is used": nil, "no such file": errors.New("no such file")} {
		log := &daemontest.SyncBuffer{}
		n := &nameService{gateways: func() ([]netip.Prefix, error) { return nil, answer }, log: slog.New(slog.NewTextHandler(log, nil))}
		n.listen(t.Context())
		if err := n.run(t.Context()); err != nil || len(n.addresses()) > 0 || !strings.Contains(log.String(), want) {
			t.Errorf("%v, %v, %s", err, n.addresses(), log)
		}
	}
}

func TestTheProcessReportsItsUsageAndItsBudget(t *testing.T) {
	c := newTestCore(t, runtimetest.NewFake())
	c.deps.Cgroup = budget.Cgroup{Name: "/agent", Limits: budget.Limits{Memory: 1 << 30}}
	m := &machineParts{evictor: short(c, &sensors{free: 100})}
	got := m.usage(c)
	if got.PID != os.Getpid() || got.Cgroup != "/agent" || got.Budget.Memory != 1<<30 || len(got.Conditions) == 0 || got.Version == "" {
		t.Errorf("%+v", got)
	}
	if got.Agent.Processes != 1 || got.Shims.Processes != 0 {
		t.Errorf("this process: %+v, shims: %+v", got.Agent, got.Shims)
	}
}
