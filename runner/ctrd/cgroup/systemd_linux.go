package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"monopod/runner/ctrd/fault"
	"monopod/runner/spec/limits"
)

// systemd creates and changes slices, for the systemd cgroup driver.
type systemd struct {
	// unified is set with only the unified hierarchy, whose properties have other names.
	unified bool

	mu   sync.Mutex
	conn *dbus.Conn // guarded by mu; nil until it is needed
}

const (
	// systemdTimeout is the timeout of one call.
	systemdTimeout = 30 * time.Second
	// quotaStep is the precision of systemd's CPU quota per second, in microseconds.
	quotaStep = 10_000
	// noLimit is how systemd writes "no limit".
	noLimit = ^uint64(0)
)

// errNoSystemd reports that systemd is not process 1.
var errNoSystemd = errors.New("cgroupDriver systemd: systemd is not running")

func newSystemd(unified bool) (*systemd, error) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil, errNoSystemd
	}
	return &systemd{unified: unified}, nil
}

// call calls systemd, and retries once if the connection is broken. Calls do not wait for each other.
func (s *systemd) call(f func(context.Context, *dbus.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), systemdTimeout)
	defer cancel()
	for again := range 2 {
		conn, err := s.connect(ctx)
		if err != nil {
			return fmt.Errorf("connect to systemd: %w", err)
		}
		if err = f(ctx, conn); err == nil || conn.Connected() || again > 0 {
			return err
		}
	}
	return nil
}

// connect returns the connection, and makes a new one if it is closed.
func (s *systemd) connect(ctx context.Context) (*dbus.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil && s.conn.Connected() {
		return s.conn, nil
	}
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
	// A connection ends with the context it is created with, which must outlive this call.
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	made := context.AfterFunc(ctx, end)
	conn, err := dbus.NewWithContext(lasting)
	if err != nil {
		end()
		return nil, err
	}
	if !made() {
		conn.Close()
		return nil, ctx.Err()
	}
	s.conn = conn
	return conn, nil
}

func (s *systemd) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

// start creates a slice, which may exist.
func (s *systemd) start(slice string) error {
	props := []dbus.Property{dbus.PropDescription("pods of monopod: " + slice), {Name: "DefaultDependencies", Value: godbus.MakeVariant(false)}}
	for _, name := range []string{"CPUAccounting", "MemoryAccounting", "TasksAccounting"} {
		props = append(props, dbus.Property{Name: name, Value: godbus.MakeVariant(true)})
	}
	err := s.call(func(ctx context.Context, c *dbus.Conn) error {
		done := make(chan string, 1)
		if _, err := c.StartTransientUnitContext(ctx, slice, "replace", props, done); err != nil {
			return err
		}
		return awaitJob(ctx, done)
	})
	if isDBusError(err, "org.freedesktop.systemd1.UnitExists") {
		return nil
	}
	return fault.Wrap("start "+slice, err)
}

func awaitJob(ctx context.Context, done <-chan string) error {
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("the job of systemd is %s", result)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// set passes the values of a slice to systemd, so that it does not revert them.
func (s *systemd) set(slice string, v limits.Values) error {
	props := []dbus.Property{property("TasksMax", orNoLimit(v.Pids)), property("CPUQuotaPerSecUSec", quotaPerSecond(v))}
	if s.unified {
		props = append(props, property("CPUWeight", CPUWeight(v.Shares)), property("MemoryMax", orNoLimit(v.Memory)),
			property("MemoryMin", uint64(v.MemoryMin)), property("MemoryLow", uint64(v.MemoryLow)))
	} else {
		props = append(props, property("CPUShares", v.Shares), property("MemoryLimit", orNoLimit(v.Memory)))
	}
	err := s.call(func(ctx context.Context, c *dbus.Conn) error {
		return c.SetUnitPropertiesContext(ctx, slice, true, props...)
	})
	return fault.Wrap("set properties of "+slice, err)
}

// stop removes a slice, which may be gone.
func (s *systemd) stop(slice string) error {
	err := s.call(func(ctx context.Context, c *dbus.Conn) error {
		done := make(chan string, 1)
		if _, err := c.StopUnitContext(ctx, slice, "replace", done); err != nil {
			return err
		}
		return awaitJob(ctx, done)
	})
	if isDBusError(err, "org.freedesktop.systemd1.NoSuchUnit") {
		return nil
	}
	return fault.Wrap("stop "+slice, err)
}

func property(name string, value uint64) dbus.Property {
	return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
}

func orNoLimit(n *int64) uint64 {
	if n == nil {
		return noLimit
	}
	return uint64(*n)
}

// quotaPerSecond returns a quota in systemd's unit, rounded up to its precision.
func quotaPerSecond(v limits.Values) uint64 {
	if v.Quota == nil || v.Period == 0 {
		return noLimit
	}
	perSecond := uint64(*v.Quota) * 1_000_000 / v.Period
	return (perSecond + quotaStep - 1) / quotaStep * quotaStep
}

func isDBusError(err error, name string) bool {
	if e, ok := errors.AsType[godbus.Error](err); ok {
		return e.Name == name
	}
	return false
}
