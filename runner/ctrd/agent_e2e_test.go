//go:build e2e

package ctrd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/e2e/ctrdtest"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/runner"
	"monopod/runner/ctrd"
)

// randomPod returns a random pod: pods 0 and 1 of 3 have a network of their own, some have host ports, volumes, or a command that
// does not exist.
func randomPod(rnd *rand.Rand, name string, hostPort int) (*manifests.Pod, error) {
	command, ports := `[sh, -c, 'echo hello; trap "exit 0" TERM; sleep 1000 & wait']`, ""
	if rnd.IntN(8) == 0 {
		command = "[/no/such/command]"
	}
	hostNetwork := rnd.IntN(3) == 0
	if !hostNetwork && rnd.IntN(3) == 0 {
		ports = fmt.Sprintf("ports: [{containerPort: 80, hostPort: %d}]", hostPort)
	}
	text := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: %t
  containers:
  - name: c
    image: %s
    command: %s
    terminationMessagePolicy: FallbackToLogsOnError
    %s
    volumeMounts: [{name: disk, mountPath: /disk}, {name: mem, mountPath: /mem}]
  volumes: [{name: disk, emptyDir: {}}, {name: mem, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]
`, name, hostNetwork, ctrdtest.TestImage, command, ports)
	pods, err := decode.Pods("/x/"+name+".yaml", []byte(text), decode.Options{Source: "file"})
	if err != nil {
		return nil, err
	}
	return pods[0], nil
}

// monkey applies random actions to one pod, in an order that a worker may use.
type monkey struct {
	rt   runner.Runtime
	rnd  *rand.Rand
	name string
	port int
	n    int
}

// round creates a pod, applies some actions, and removes it.
func (m *monkey) round(ctx context.Context) error {
	pod, err := randomPod(m.rnd, m.name, m.port)
	if err != nil {
		return err
	}
	m.n++
	act := func(a runner.Action) error { return m.rt.Apply(ctx, pod.Key(), pod, a) }
	uid := fmt.Sprintf("%s-%d-%d", m.name, m.n, os.Getpid())
	for _, a := range []runner.Action{{Kind: runner.CreateSandbox, UID: uid}, {Kind: runner.EnsureImage, Container: "c"}} {
		if err := act(a); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	for range 1 + m.rnd.IntN(3) {
		if m.rnd.IntN(10) == 0 {
			break // removed before a container was made
		}
		if err := m.instance(ctx, pod, act); err != nil {
			return err
		}
	}
	return m.remove(ctx, pod.Key())
}

// instance creates one more container and removes the older ones.
func (m *monkey) instance(ctx context.Context, pod *manifests.Pod, act func(runner.Action) error) error {
	var step *runner.StepError
	if err := act(runner.Action{Kind: runner.CreateContainer, Container: "c"}); err != nil {
		if errors.As(err, &step) && step.Reason == runner.ReasonRunContainerError {
			return nil // the command does not exist
		}
		return fmt.Errorf("create: %w", err)
	}
	if m.rnd.IntN(6) == 0 {
		return nil // never started
	}
	st, err := m.rt.Observe(ctx, pod.Key())
	if err != nil {
		return err
	}
	for _, c := range st.Containers[:max(0, len(st.Containers)-1)] {
		if err := m.retire(ctx, pod.Key(), c); err != nil {
			return err
		}
	}
	if err := act(runner.Action{Kind: runner.StartContainer, Container: "c"}); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	return nil
}

// retire stops a container, kills it, or removes it while it runs.
func (m *monkey) retire(ctx context.Context, key manifests.Key, c runner.Container) error {
	on := func(kind runner.ActionKind) error {
		return m.rt.Apply(ctx, key, nil, runner.Action{Kind: kind, Container: c.Name, ContainerID: c.ID, Exit: c.Exit})
	}
	kind := runner.KillContainer
	switch m.rnd.IntN(3) {
	case 0:
		return on(runner.RemoveContainer)
	case 1:
		if err := on(runner.StopContainer); err != nil {
			return err
		}
		time.Sleep(time.Duration(m.rnd.IntN(20)) * time.Millisecond) // sometimes it has ended, sometimes not
	}
	if err := on(kind); err != nil {
		return err
	}
	for deadline := time.Now().Add(ctrdtest.Patience); ; time.Sleep(2 * time.Millisecond) {
		st, err := m.rt.Observe(ctx, key)
		if err != nil {
			return err
		}
		now, ok := byID(st.Containers, c.ID)
		if !ok {
			return nil // it was never started, and swept away
		}
		if c = now; c.State == runner.ContainerExited {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("container %s does not end", c.ID)
		}
	}
	if err := on(runner.FinishContainer); err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	return on(runner.RemoveContainer)
}

func byID(all []runner.Container, id string) (runner.Container, bool) {
	for _, c := range all {
		if c.ID == id {
			return c, true
		}
	}
	return runner.Container{}, false
}

func (m *monkey) remove(ctx context.Context, key manifests.Key) error {
	return ctrdtest.RemovePod(ctx, m.rt, key)
}

// monkeys runs several monkeys in parallel, for so many rounds in total.
func monkeys(ctx context.Context, rt runner.Runtime, seed uint64, rounds int) error {
	const side = 4
	errs := make([]error, side)
	var g sync.WaitGroup
	for i := range side {
		m := &monkey{rt: rt, rnd: rand.New(rand.NewPCG(seed, uint64(i))), name: fmt.Sprintf("monkey%d", i), port: 20000 + i}
		g.Go(func() {
			for range rounds / side {
				if errs[i] = m.round(ctx); errs[i] != nil {
					return
				}
			}
		})
	}
	g.Wait()
	return errors.Join(errs...)
}

func TestNothingLeaksOverRandomRounds(t *testing.T) {
	for name, external := range map[string]bool{"embedded": false, "external": true} {
		t.Run(name, func(t *testing.T) {
			w := ctrdtest.NewWorld(t)
			rounds := 200
			if external {
				ctrdtest.StartContainerd(t, w)
				rounds = 60
			}
			a := w.Open(t)
			defer a.End(t)
			ctrdtest.Check(t, monkeys(t.Context(), a, 1, 8)) // bridge, firewall chains and caches are there then
			a.Idle(t)
			before := a.Census(t)
			ctrdtest.Check(t, monkeys(t.Context(), a, uint64(time.Now().UnixNano()), rounds))
			a.Idle(t)
			a.SameCensus(t, before)
		})
	}
}

// agentWorld is the input of an agent in a process of its own.
type agentWorld struct {
	Dir, Run, CIDR string
	Seed           uint64
}

// agentMain is such an agent: it applies random actions until it is killed.
func agentMain(file string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("agent:", err)
			os.Exit(1)
		}
	}
	b, err := os.ReadFile(file)
	fail(err)
	var aw agentWorld
	fail(json.Unmarshal(b, &aw))
	w := &ctrdtest.World{Dir: aw.Dir, Run: aw.Run, CIDR: aw.CIDR, Log: ctrdtest.NewLog()}
	ctx := context.Background()
	rt, err := ctrd.Open(ctx, w.Config())
	fail(err)
	go func() { fail(rt.Run(ctx)) }()
	keys, err := rt.List(ctx)
	fail(err)
	for _, k := range keys { // what the previous agent was at
		if k.Name[0] == 'm' {
			fail(ctrdtest.RemovePod(ctx, rt, k))
		}
	}
	fmt.Println("ready")
	fail(monkeys(ctx, rt, aw.Seed, 1<<20))
}

// TestAKilledAgentLeavesNothingBehindAndStopsNothing kills agents during random actions.
func TestAKilledAgentLeavesNothingBehindAndStopsNothing(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	ctrdtest.Check(t, monkeys(t.Context(), a, 1, 8))
	a.Idle(t)
	before := a.Census(t)
	pids := map[manifests.Key]uint32{}
	for i := range 4 {
		pod := ctrdtest.Stamped(t, fmt.Sprintf("stable%d", i), w.Dir, i%2 == 0)
		ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
		pids[pod.Key()] = a.PID(t, pod.Key())
	}
	a.Stop(t)
	for i := range 12 {
		killAgent(t, w, uint64(i), time.Duration(30+i*45)*time.Millisecond)
	}
	began := time.Now()
	a = w.Open(t)
	defer func() { a.End(t) }()
	t.Logf("open after the last kill: %v", time.Since(began))
	for key, pid := range pids {
		if now := a.PID(t, key); now != pid || !ctrdtest.Alive(pid) {
			t.Errorf("%s had pid %d, has %d", key, pid, now)
		}
	}
	keys, err := a.List(t.Context())
	ctrdtest.Check(t, err)
	for _, k := range keys {
		ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, k))
	}
	a.Idle(t)
	// Goroutines of the containerd that was stopped in this process remain: its event exchange cannot be closed.
	delete(before, "goroutines")
	a.SameCensus(t, before)
}

// killAgent runs an agent for a while after it is ready, then kills it.
func killAgent(t *testing.T, w *ctrdtest.World, seed uint64, after time.Duration) {
	t.Helper()
	b, err := json.Marshal(agentWorld{Dir: w.Dir, Run: w.Run, CIDR: w.CIDR, Seed: seed})
	ctrdtest.Check(t, err)
	file := filepath.Join(w.Dir, "agent.json")
	ctrdtest.Check(t, os.WriteFile(file, b, 0o600))
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), ctrdtest.EnvAgent+"="+file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	ctrdtest.Check(t, err)
	ctrdtest.Check(t, cmd.Start())
	line := make([]byte, 100)
	n, err := out.Read(line)
	if err != nil || string(line[:n]) != "ready\n" {
		t.Errorf("agent %d says %q, %v", seed, line[:n], err)
	}
	time.Sleep(after) // any moment will do
	ctrdtest.Check(t, cmd.Process.Signal(unix.SIGKILL))
	_ = cmd.Wait()
}
