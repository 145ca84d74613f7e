package stats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"monopod/internal/model"
	"monopod/manifests"
)

func TestPodsAreInTheOrderOfTheirNames(t *testing.T) {
	n, c := newNode(t)
	place := n.places[0]
	n.places = nil
	for _, name := range []string{"b/a", "a/b", "a/a"} {
		place.Namespace, place.Name, _ = strings.Cut(name, "/")
		n.places = append(n.places, place)
	}
	pods, err := c.Pods(t.Context(), Options{})
	var names []string
	for i := range pods {
		names = append(names, pods[i].String())
	}
	if got := strings.Join(names, " "); err != nil || got != "a/a a/b b/a" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestWhatCannotBeReadAtAll(t *testing.T) {
	n, c := newNode(t)
	c.cfg.Source = nil
	if _, err := c.Pods(t.Context(), Options{}); err == nil || err.Error() != "no pods are known" {
		t.Errorf("without pods: %v", err)
	}
	c.cfg.Source, n.err = n, errors.New("broken")
	if _, _, err := c.All(t.Context(), Options{}); !errors.Is(err, n.err) || !strings.HasPrefix(err.Error(), "look for pods: ") {
		t.Errorf("pods: %v", err)
	}
	n.err = nil
	if err := os.Remove(n.root + "/proc/meminfo"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.All(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "proc/meminfo has no memory values") {
		t.Errorf("machine: %v", err)
	}
}

// A kernel may lack all of this: the rest is reported.
func TestAMachineThatTellsLittle(t *testing.T) {
	n, c := newNode(t)
	n.onWait = func(time.Duration) {}
	for _, name := range []string{"self", "pressure", "diskstats", "vmstat"} {
		if err := os.RemoveAll(n.root + "/proc/" + name); err != nil {
			t.Fatal(err)
		}
	}
	write(t, n.root, map[string]string{"proc/loadavg": "0.1 0.2\n", "proc/diskstats": " 8 0 sda 3\n"})
	if err := os.RemoveAll(n.root + "/cg"); err != nil {
		t.Fatal(err)
	}
	m, err := c.Machine(t.Context(), Options{Rates: true})
	if err != nil || m.Agent != nil || m.Pods != nil || m.Network != nil || m.IO.Devices != nil || m.IO.PSI != nil || m.Pids.Current != 0 {
		t.Errorf("%+v, %v", m, err)
	}
	// Without a root cgroup that counts, /proc/stat does.
	if m.CPU.Usage != 1900*time.Millisecond || m.CPU.NanoCores == nil || *m.CPU.NanoCores != 0 || m.Memory.WorkingSet != m.Memory.Usage {
		t.Errorf("%+v", m.Usage)
	}
}

func TestRatesOfV1(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"p/cpuacct.usage": "1000\n"})
	now := time.Unix(1000, 0)
	c := New(Config{
		Hierarchies: Hierarchies{Controllers: map[string]string{"cpuacct": root}}, Source: onePlace("/p"),
		Now: func() time.Time { return now },
		Wait: func(_ context.Context, d time.Duration) {
			now = now.Add(d)
			write(t, root, map[string]string{"p/cpuacct.usage": "25001000\n"})
		},
	})
	pods, err := c.Pods(t.Context(), Options{Rates: true})
	if err != nil || len(pods) != 1 || pods[0].CPU.NanoCores == nil || *pods[0].CPU.NanoCores != 250_000_000 {
		t.Errorf("%+v, %v; want 25 ms in 100 ms", pods, err)
	}
}

// TestNoRateIsMoreThanThereIs: one processor is busy all the time, and each look at the clock and each wait takes time.
func TestNoRateIsMoreThanThereIs(t *testing.T) {
	root := t.TempDir()
	began := time.Unix(1000, 0)
	now := began
	pass := func(d time.Duration) {
		now = now.Add(d)
		write(t, root, map[string]string{"p/cpuacct.usage": fmt.Sprintln(now.Sub(began).Nanoseconds())})
	}
	pass(time.Second)
	c := New(Config{
		Hierarchies: Hierarchies{Controllers: map[string]string{"cpuacct": root}}, Source: onePlace("/p"),
		Now: func() time.Time {
			pass(7 * time.Millisecond)
			defer pass(11 * time.Millisecond)
			return now
		},
		Wait: func(_ context.Context, d time.Duration) { pass(d) },
	})
	for _, since := range []time.Duration{0, firstWindow, rateWindow, 5 * rateWindow} {
		pass(since)
		pods, err := c.Pods(t.Context(), Options{Rates: true})
		if err != nil || len(pods) != 1 || pods[0].CPU.NanoCores == nil || *pods[0].CPU.NanoCores > 1_000_000_000 || *pods[0].CPU.NanoCores < 700_000_000 {
			t.Errorf("%v after the last one: %+v, %v", since, pods, err)
		}
	}
}

// onePlace is a pod in a cgroup, whose disk cannot be measured.
type onePlace string

func (p onePlace) Places(context.Context) ([]model.Place, error) {
	return []model.Place{{Key: manifests.Key{Namespace: "default", Name: "web"}, UID: "u", Cgroup: string(p)}}, nil
}

func (onePlace) MeasureDisk(ctx context.Context, _ model.Place) (PodDisk, error) {
	return PodDisk{}, errors.Join(errors.New("it is gone"), ctx.Err())
}

func TestADiskThatCannotBeMeasuredIsLeftOut(t *testing.T) {
	_, c := newNode(t)
	c.cfg.Source = onePlace("/pods/pod1")
	pods, err := c.Pods(t.Context(), Options{Disks: true})
	if err != nil || len(pods) != 1 || pods[0].Disk != nil {
		t.Errorf("%+v, %v", pods, err)
	}
}

// A request that ends during a walk gets an error instead of half an answer.
func TestACanceledWalkIsAnError(t *testing.T) {
	n, c := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	c.cfg.Source = canceling{n, cancel}
	if _, err := c.Pods(ctx, Options{Disks: true}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if pods, err := c.Pods(t.Context(), Options{Disks: true}); err != nil || pods[0].Disk == nil {
		t.Errorf("the next request: %v", err)
	}
}

// canceling ends a request during the first walk.
type canceling struct {
	*node
	cancel func()
}

func (c canceling) MeasureDisk(ctx context.Context, p model.Place) (PodDisk, error) {
	c.cancel()
	return c.node.MeasureDisk(ctx, p)
}

func TestTheWaitForARateEndsWithTheRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	New(Config{}).cfg.Wait(ctx, time.Hour)
	New(Config{}).cfg.Wait(t.Context(), time.Nanosecond)
}
