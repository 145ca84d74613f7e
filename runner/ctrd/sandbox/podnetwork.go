package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/locks"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/network/bandwidth"
	"monopod/runner/ctrd/network/hostports"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/taskwatch"
)

// networkTimeout is the timeout of one set-up or teardown of a network.
const networkTimeout = 2 * time.Minute

// Setups are the network set-ups of this process, by sandbox. A failed one stays until SetupNetwork is called or the sandbox is removed.
type Setups struct {
	mu sync.Mutex
	m  map[string]*add
	wg sync.WaitGroup
}

// add is one network set-up; err is set before done is closed.
type add struct {
	done   chan struct{}
	err    error
	cancel context.CancelFunc
}

// NewSetups returns empty Setups.
func NewSetups() *Setups { return &Setups{m: map[string]*add{}} }

func (a *Setups) get(id string) *add {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.m[id]
}

// start runs f in the background unless a set-up is running, and returns the running one.
func (a *Setups) start(ctx context.Context, id string, f func(context.Context) error) *add {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.m[id]; n != nil && !n.ended() {
		return n
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), networkTimeout)
	n := &add{done: make(chan struct{}), cancel: cancel}
	a.m[id] = n
	a.wg.Go(func() {
		defer cancel()
		defer close(n.done)
		n.err = f(ctx)
	})
	return n
}

func (n *add) ended() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

func (n *add) wait(ctx context.Context) error {
	select {
	case <-n.done:
		return n.err
	case <-ctx.Done():
		return fault.Known(cause.Network, ctx.Err())
	}
}

// cancel cancels a set-up in progress.
func (a *Setups) cancel(id string) {
	if n := a.get(id); n != nil {
		n.cancel()
	}
}

// Forget waits for the end of a set-up and deletes it.
func (a *Setups) Forget(id string) {
	n := a.get(id)
	if n == nil {
		return
	}
	n.cancel()
	<-n.done
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.m, id)
}

// Wait waits for all set-ups, and cancels those that are running when ctx ends.
func (a *Setups) Wait(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.wg.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		a.mu.Lock()
		for _, n := range a.m {
			n.cancel()
		}
		a.mu.Unlock()
		<-done
	}
}

// Network sets up the networks of pods in the background, and tears them down.
type Network struct {
	Net     *network.Network
	Records *record.Store
	Index   *record.Index
	Dirs    layout.Dirs
	Files   *Files
	Watch   *taskwatch.Watchers
	BootID  string
	Log     *slog.Logger

	Adds *Setups
	// NetSlots limit the number of parallel set-ups.
	NetSlots locks.Slots
}

// startNetwork sets up the network in the background.
func (r *Network) startNetwork(ctx context.Context, rec *record.Sandbox) *add {
	return r.Adds.start(ctx, rec.ID, func(ctx context.Context) error {
		err := r.addNetwork(ctx, rec.ID)
		r.Watch.Notify(rec.Meta.Key)
		return err
	})
}

// addNetwork sets up the network and stores its result in /etc/hosts, the record and the index.
func (r *Network) addNetwork(ctx context.Context, id string) (err error) {
	defer runner.BeginPhase(ctx, runner.PhaseNetwork)()
	began := time.Now()
	defer func() {
		runner.ReportPhase(ctx, runner.Phase{Name: runner.PhaseNetwork, Began: began, Over: time.Now(), Err: err})
	}()
	done, err := r.NetSlots.Take(ctx)
	if err != nil {
		return err
	}
	defer done()
	rec := r.Index.SandboxByID(id)
	if rec == nil {
		return fmt.Errorf("sandbox %s is gone", id)
	}
	ips, err := r.Net.Setup(ctx, r.networkPod(rec))
	if err != nil {
		return fault.Known(cause.Network, fmt.Errorf("set up network: %w", err))
	}
	rec = r.Index.SandboxByID(id)
	if rec == nil || rec.Meta.State != record.Active {
		return fmt.Errorf("sandbox %s is gone", id)
	}
	withIPs := *rec
	withIPs.Network.IPs = ips
	if err := r.Files.writeHosts(&withIPs); err != nil {
		return fmt.Errorf("write hosts file: %w", err)
	}
	_, err = r.Records.UpdateSandbox(ctx, id, func(s *record.Sandbox) {
		s.Network = record.NetworkResult{Ready: true, IPs: ips}
	}, record.ExtNetwork)
	return err
}

// SetupNetwork repeats a set-up that failed or was interrupted.
func (r *Network) SetupNetwork(ctx context.Context, key manifests.Key) error {
	rec := r.Index.Sandbox(key)
	if rec == nil {
		return fmt.Errorf("pod %s has no sandbox", key)
	}
	if rec.Network.Ready {
		return nil
	}
	return networkError(r.repeatNetwork(ctx, rec).wait(ctx))
}

// repeatNetwork tears the network down and sets it up in the background.
func (r *Network) repeatNetwork(ctx context.Context, rec *record.Sandbox) *add {
	return r.Adds.start(ctx, rec.ID, func(ctx context.Context) error {
		if err := r.Net.Teardown(ctx, r.networkPod(rec)); err != nil {
			return fault.Known(cause.Network, fmt.Errorf("undo network: %w", err))
		}
		err := r.addNetwork(ctx, rec.ID)
		r.Watch.Notify(rec.Meta.Key)
		return err
	})
}

// networkError names the failed step. A host port in use is a conflict, as in the admission of pods.
func networkError(err error) error {
	if held, ok := errors.AsType[*hostports.HeldError](err); ok {
		c := cause.Cause{Kind: cause.HostPortProcess}
		if held.Pod != "" {
			c.Kind, c.Pod = cause.HostPortPod, held.Pod
		}
		return fault.Step(runner.ReasonHostPortConflict, cause.Wrap(held, c))
	}
	return fault.Step(runner.ReasonCreatePodSandboxError, err)
}

// WaitNetwork waits until the sandbox's network is up.
func (r *Network) WaitNetwork(ctx context.Context, id string) error {
	rec := r.Index.SandboxByID(id)
	switch {
	case rec == nil:
		return fault.Step(runner.ReasonCreatePodSandboxError, fmt.Errorf("sandbox %s is gone", id))
	case rec.Network.Ready:
		return nil
	}
	n := r.Adds.get(id)
	if n == nil {
		return fault.Step(runner.ReasonCreatePodSandboxError, fault.Known(cause.Network, errors.New("the network setup was interrupted and must be repeated")))
	}
	return networkError(n.wait(ctx))
}

// networkPod returns what the network needs to know of a pod.
func (r *Network) networkPod(rec *record.Sandbox) network.Pod {
	p := network.Pod{
		SandboxID: rec.ID,
		NetNS:     filepath.Join(r.Dirs.NsDir(rec.ID), "net"),
		Namespace: rec.Meta.Key.Namespace,
		Name:      rec.Meta.Key.Name,
		UID:       rec.Meta.UID,
		Bandwidth: bandwidthOf(rec.Pod),
	}
	if rec.Pod.Object.Spec.HostNetwork {
		p.Pin = filepath.Join(r.Dirs.NsDir(rec.ID), "ipc")
	}
	for c := range manifests.LongRunningContainers(&rec.Pod.Object.Spec) {
		for _, m := range c.Ports {
			if m.HostPort > 0 {
				p.PortMappings = append(p.PortMappings, network.PortMapping{
					HostPort:      m.HostPort,
					ContainerPort: m.ContainerPort,
					Protocol:      protocol(m.Protocol),
					HostIP:        m.HostIP,
				})
			}
		}
	}
	return p
}

// bandwidthOf returns the limits of a pod; manifests with invalid limits were refused.
func bandwidthOf(pod *manifests.Pod) bandwidth.Limits {
	b, err := manifests.PodBandwidth(pod.Object)
	if err != nil {
		return bandwidth.Limits{}
	}
	return bandwidth.Limits(b)
}

func protocol(p corev1.Protocol) string {
	switch p {
	case corev1.ProtocolUDP:
		return "udp"
	case corev1.ProtocolSCTP:
		return "sctp"
	}
	return "tcp"
}

// AdoptNetworks passes the pods of an earlier run to the network, which claims their host ports, and watches and repairs their
// links. Errors are logged and do not prevent the start.
func (r *Network) AdoptNetworks() {
	var pods []network.Pod
	for _, rec := range r.Index.List() {
		if rec.Meta.State == record.Active && rec.Meta.BootID == r.BootID && rec.Network.Ready {
			pods = append(pods, r.networkPod(rec))
		}
	}
	if err := r.Net.Adopt(pods); err != nil {
		r.Log.Warn("adopt the networks of pods", "err", err)
	}
}

// claimHostPorts claims the ports of a pod on the host's network. A pod without any namespace of its own claims none, because
// nothing would show that it still exists.
func (r *Network) claimHostPorts(rec *record.Sandbox) error {
	if pod := rec.Pod.Object; !pod.Spec.HostNetwork || !NamespacesOf(pod).IPC {
		return nil
	}
	return networkError(fault.Known(cause.Network, r.Net.ClaimHost(r.networkPod(rec))))
}

// TeardownNetwork tears down the network of a sandbox.
func (r *Network) TeardownNetwork(ctx context.Context, rec *record.Sandbox) error {
	done, err := r.NetSlots.Take(ctx)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	return fault.Wrap("undo network", r.Net.Teardown(ctx, r.networkPod(rec)))
}
