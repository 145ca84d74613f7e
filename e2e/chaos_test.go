//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// chaos edits manifests, kills processes, and checks that the pods that run afterwards match the manifests.
type chaos struct {
	t    *testing.T
	in   *instance
	rnd  *rand.Rand
	id   string
	gen  int
	pods []*chaosPod
	// story lists what happened since the last quiescence.
	story []string
	done  map[string]int
	// spare keeps the agent from being killed or restarted.
	spare bool
	// more are additional kinds of trouble; ends stops their lasting effects before a quiescence.
	more []kind
	ends func()
}

// kind is a kind of trouble: its relative frequency, and a function that causes it and describes it; an empty description means that
// nothing was done.
type kind struct {
	weight int
	name   string
	do     func() string
}

// TestChaosConvergesAndLeavesNothingBehind runs rounds of random trouble for about a minute. MONOPOD_CHAOS=10m makes it longer,
// MONOPOD_CHAOS_SEED=n repeats the sequence of a run, though not its exact timing.
func TestChaosConvergesAndLeavesNothingBehind(t *testing.T) {
	duration, err := time.ParseDuration(or(os.Getenv("MONOPOD_CHAOS"), "60s"))
	if err != nil {
		t.Fatal(err)
	}
	seed, err := strconv.ParseUint(or(os.Getenv("MONOPOD_CHAOS_SEED"), strconv.FormatInt(time.Now().Unix(), 10)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("MONOPOD_CHAOS_SEED=%d", seed)
	in := newInstance(t, "crashLoopBackOff: {maxContainerRestartPeriod: 1s}", "fileCheckFrequency: 5s")
	c := &chaos{t: t, in: in, rnd: newRand(seed), id: strconv.Itoa(os.Getpid()), done: map[string]int{}}
	for i := range 12 {
		c.pods = append(c.pods, newChaosPod(t, i))
	}
	t.Cleanup(func() { // before the instance's own
		if path := os.Getenv("MONOPOD_CHAOS_LOG"); path != "" && t.Failed() {
			_ = os.WriteFile(path, []byte(in.log.String()), 0o644)
		}
	})
	in.start()
	before := in.census()
	for _, p := range c.pods {
		c.accept(p, p.def)
	}
	_ = c.quiet()
	began, rounds := time.Now(), 0
	for ; time.Since(began) < duration; rounds++ {
		c.round()
	}
	t.Logf("%d rounds in %v: %v", rounds, time.Since(began).Round(time.Second), c.done)
	c.removeAll(before)
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// round makes some trouble and waits until the right pods run.
func (c *chaos) round() {
	c.forget()
	for range 2 + c.rnd.IntN(12) {
		what := c.trouble()
		if what == "" {
			continue
		}
		c.story = append(c.story, what)
		if c.rnd.IntN(3) > 0 {
			time.Sleep(time.Duration(c.rnd.IntN(300)) * time.Millisecond) // what else happens is what this is about
		}
	}
	if c.ends != nil {
		c.ends()
	}
	began := time.Now()
	last := c.quiet()
	c.t.Logf("%v until quiet (last: %v) after: %s", time.Since(began).Round(time.Millisecond), last, strings.Join(c.story, "; "))
}

// forget starts a new story after everything was checked.
func (c *chaos) forget() {
	c.story = nil
	for _, p := range c.pods {
		p.edited = false
		clear(p.disturbed)
		if p.file == "" {
			clear(p.spent)
		}
	}
}

// trouble causes one fault and returns its description; empty for none.
func (c *chaos) trouble() string {
	kinds := []kind{
		{10, "edit", func() string { return c.edit(c.any()) }},
		{3, "spoil", func() string { return c.spoil(c.any()) }},
		{3, "remove", func() string { return c.remove(c.any()) }},
		{2, "rename", func() string { return c.rename(c.any()) }},
		{3, "kill process", func() string { return c.kill("process") }},
		{2, "kill shim", func() string { return c.kill("shim") }},
		{2, "kill agent", func() string {
			if c.spare {
				return ""
			}
			c.in.kill9()
			c.in.start()
			return "kill -9 of the agent"
		}},
		{1, "stop agent", func() string {
			if c.spare {
				return ""
			}
			return c.restart()
		}},
		{1, "directory away", c.directoryAway},
		{1, "directory removed", c.directoryRemoved},
	}
	kinds = append(kinds, c.more...)
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	n := c.rnd.IntN(total)
	for _, k := range kinds {
		if n -= k.weight; n < 0 {
			what := k.do()
			if what != "" {
				c.done[k.name]++
			}
			return what
		}
	}
	return ""
}

func (c *chaos) restart() string {
	if err := c.in.signal(syscall.SIGTERM); err != nil {
		c.t.Errorf("the agent ended with %v after SIGTERM\n%s", err, c.in.log.tail())
	}
	c.in.start()
	return "restart of the agent"
}

// kill kills a container's first process or its shim.
func (c *chaos) kill(what string) string {
	table := c.in.table()
	var victims []process
	for _, p := range table {
		if strings.Contains(p.cmdline, "chaos="+c.id) && strings.HasPrefix(p.cmdline, "sh -c") {
			victims = append(victims, p)
		}
	}
	if len(victims) == 0 {
		return ""
	}
	slices.SortFunc(victims, func(a, b process) int { return strings.Compare(a.cmdline, b.cmdline) })
	v := victims[c.rnd.IntN(len(victims))]
	f := strings.SplitN(v.cmdline[strings.Index(v.cmdline, "chaos="):], "/", 3)
	container, _, _ := strings.Cut(f[2], "=")
	i, _ := strconv.Atoi(f[1][1:])
	pod := c.pods[i]
	pod.disturb(container)
	if pod.policy == corev1.RestartPolicyNever {
		pod.spent[container] = true
	}
	pid := v.pid
	if what == "shim" {
		if table[v.parent].shim == "" {
			return ""
		}
		pid = v.parent
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	return fmt.Sprintf("kill -9 of the %s of %s/%s", what, pod.name, container)
}

// directoryAway moves the whole directory away briefly: no pod may be affected.
func (c *chaos) directoryAway() string {
	away := c.in.manifests + ".away"
	if err := os.Rename(c.in.manifests, away); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(time.Duration(c.rnd.IntN(300)) * time.Millisecond)
	if err := os.Rename(away, c.in.manifests); err != nil {
		c.t.Fatal(err)
	}
	return "directory away and back"
}

// directoryRemoved removes and recreates the directory: all pods stopped for it must come back.
func (c *chaos) directoryRemoved() string {
	if err := os.RemoveAll(c.in.manifests); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(time.Duration(c.rnd.IntN(300)) * time.Millisecond)
	if err := os.MkdirAll(c.in.manifests, 0o755); err != nil {
		c.t.Fatal(err)
	}
	for _, p := range c.pods {
		p.disturb(p.containers...)
		if p.file != "" {
			c.accept(p, p.def)
		}
	}
	return "directory removed and made anew"
}

// quiet waits until the right pods run, three times in a row. It returns the last difference.
func (c *chaos) quiet() (last error) {
	c.t.Helper()
	good := 0
	c.in.eventually("what runs is what the manifests say after: "+strings.Join(c.story, "; "), func() error {
		if err := c.check(); err != nil {
			good, last = 0, errors.New(strings.SplitN(err.Error(), "\n", 2)[0])
			return err
		}
		if good++; good < 3 {
			return fmt.Errorf("right only %d times", good)
		}
		return nil
	})
	for _, p := range c.pods {
		c.untouched(p)
	}
	return last
}

// untouched fails the test for containers that were replaced without a reason.
func (c *chaos) untouched(p *chaosPod) {
	all, err := c.in.pods()
	if err != nil {
		c.t.Fatal(err)
	}
	now := map[string]string{}
	for _, s := range all[p.name].Status.ContainerStatuses {
		now[s.Name] = s.ContainerID
		old := p.before[s.Name]
		if old != "" && !p.disturbed[s.Name] && p.exits < 0 && old != s.ContainerID {
			c.t.Errorf("container %s of %s was restarted for nothing after: %s\n%s", s.Name, p.name, strings.Join(c.story, "; "), brief(all[p.name]))
		}
	}
	p.before = now
}

// check compares running pods with those that must run.
func (c *chaos) check() error {
	pods, err := c.in.pods()
	if err != nil {
		return err
	}
	table := c.in.table()
	known := map[int]bool{}
	for _, p := range c.pods {
		if err := c.checkPod(p, pods, table, known); err != nil {
			return fmt.Errorf("%s: %w\n%s", p.name, err, brief(pods[p.name]))
		}
	}
	for pid, p := range table {
		if p.shim != "" || known[pid] {
			continue
		}
		if !known[p.parent] {
			return fmt.Errorf("process %d runs for nobody: %s", pid, p.cmdline)
		}
	}
	return nil
}

func (c *chaos) checkPod(p *chaosPod, pods map[string]corev1.Pod, table map[int]process, known map[int]bool) error {
	pod, shown := pods[p.name]
	if p.live != nil && !shown {
		return fmt.Errorf("is not shown")
	}
	if p.file == "" && shown {
		return fmt.Errorf("is still shown")
	}
	if p.live != nil && !p.bad && pod.Labels["v"] != strconv.Itoa(p.live.label) {
		return fmt.Errorf("label is %s", pod.Labels["v"])
	}
	for _, name := range p.containers {
		var found []process
		for _, proc := range table {
			if proc.mine && strings.HasPrefix(proc.cmdline, "sh -c") && strings.Contains(proc.cmdline, c.mark(p, name)) && table[proc.parent].shim != "" {
				found = append(found, proc)
				known[proc.pid] = true
			}
		}
		if err := c.checkContainer(p, name, pod, found); err != nil {
			return fmt.Errorf("container %s: %w", name, err)
		}
	}
	if p.live != nil && p.hostPort > 0 && !p.spent["a"] {
		return p.answers()
	}
	return nil
}

func (c *chaos) checkContainer(p *chaosPod, name string, pod corev1.Pod, found []process) error {
	if p.live == nil {
		if len(found) > 0 {
			return fmt.Errorf("%d processes run", len(found))
		}
		return nil
	}
	if p.ends(name) {
		return p.hasEnded(name, pod)
	}
	if p.spent[name] && len(found) == 0 {
		return nil
	}
	if len(found) != 1 {
		return fmt.Errorf("%d processes run", len(found))
	}
	gen, env, _ := strings.Cut(p.generations(*p.live, name), "/")
	if !strings.Contains(found[0].cmdline, c.mark(p, name)+gen+";") {
		return fmt.Errorf("runs %q, want generation %s", found[0].cmdline, gen)
	}
	environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", found[0].pid))
	if !strings.Contains("\x00"+string(environ), "\x00GEN="+env+"\x00") {
		return fmt.Errorf("environment is %q, want generation %s", environ, env)
	}
	host, _ := os.ReadFile(fmt.Sprintf("/proc/%d/root/etc/hostname", found[0].pid))
	if p.live.host > 0 && strings.TrimSpace(string(host)) != fmt.Sprintf("host%d", p.live.host) {
		return fmt.Errorf("host name is %q, want generation %d", host, p.live.host)
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == name && s.State.Running == nil {
			return fmt.Errorf("runs, but is not shown so")
		}
	}
	return nil
}

// hasEnded checks a container that ends by itself.
func (p *chaosPod) hasEnded(name string, pod corev1.Pod) error {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name != name {
			continue
		}
		if p.policy == corev1.RestartPolicyAlways {
			if s.RestartCount == 0 {
				return fmt.Errorf("was not restarted")
			}
			return nil
		}
		if s.State.Terminated == nil {
			return fmt.Errorf("has not ended")
		}
		if code := s.State.Terminated.ExitCode; int(code) != p.exits && !p.spent[name] {
			return fmt.Errorf("ended with %d, want %d", code, p.exits)
		}
		return nil
	}
	return fmt.Errorf("has no status")
}

// answers requests the pod's host port.
func (p *chaosPod) answers() error {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", p.hostPort))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && strings.TrimSpace(string(b)) != p.name {
		err = fmt.Errorf("port %d answers %q", p.hostPort, b)
	}
	return err
}

// removeAll removes everything and checks for leftovers.
func (c *chaos) removeAll(before map[string]int) {
	c.story = []string{"removal of everything"}
	for _, p := range c.pods {
		c.remove(p)
	}
	_ = c.quiet()
	c.in.sameCensus(before)
	open := c.in.open()
	c.restart()
	fresh := c.in.open()
	c.t.Logf("file descriptors of the agent: %d, of a new one: %d", open, fresh)
	if open > fresh+10 {
		c.t.Errorf("the agent had %d file descriptors open, a new one has %d", open, fresh)
	}
	if err := c.in.signal(syscall.SIGTERM); err != nil {
		c.t.Error(err)
	}
	if n := c.in.records(); n["containers"]+n["sandboxes"]+n["leases"] != 0 || n["snapshots"] > 1 {
		c.t.Errorf("records left in containerd: %v", n)
	}
}
