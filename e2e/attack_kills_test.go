//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// killsAtOnce is the number of kills between two checks.
const killsAtOnce = 5

// TestAttackKills kills the agent at random moments, also during startup, while pods are created, edited, removed and exit. No pod is lost
// or duplicated, no container is restarted without reason, and nothing is left at the end.
func TestAttackKills(t *testing.T) {
	kills := 10
	if large() {
		kills = 500
	}
	in := newInstance(t, "crashLoopBackOff: {maxContainerRestartPeriod: 1s}", "fileCheckFrequency: 5s")
	c := &chaos{t: t, in: in, rnd: newRand(11), id: "kills-" + strconv.Itoa(syscall.Getpid()), done: map[string]int{}}
	for i := range 12 {
		c.pods = append(c.pods, newChaosPod(t, i))
	}
	in.start()
	before := in.census()
	for _, p := range c.pods[:6] {
		c.accept(p, p.def)
	}
	_ = c.quiet()
	for n := 0; n < kills; {
		c.forget()
		for range killsAtOnce {
			for range 1 + c.rnd.IntN(4) {
				if what := c.step(); what != "" {
					c.story = append(c.story, what)
				}
			}
			c.pause(200 * time.Millisecond)
			in.kill9()
			n++
			if c.rnd.IntN(3) == 0 {
				n++
				c.story = append(c.story, "kill -9 of an agent that starts")
				c.killStarting()
			}
			c.story = append(c.story, "kill -9")
			in.start()
		}
		_ = c.quiet()
	}
	t.Logf("%d kills: %v", kills, c.done)
	c.removeAll(before)
	for line := range strings.Lines(in.log.String()) {
		if strings.Contains(line, "could not be used") || strings.Contains(line, "is damaged") {
			t.Errorf("a kill has damaged something: %s", line)
		}
	}
}

// step changes the desired pods, or ends a process.
func (c *chaos) step() string {
	kinds := []func() string{
		func() string { return c.edit(c.any()) }, func() string { return c.edit(c.any()) },
		func() string { return c.remove(c.any()) }, func() string { return c.rename(c.any()) },
		func() string { return c.kill("process") },
	}
	what := kinds[c.rnd.IntN(len(kinds))]()
	if verb, _, _ := strings.Cut(what, " "); verb != "" {
		c.done[verb]++
	}
	return what
}

// pause waits for a random time, during which pods change by themselves.
func (c *chaos) pause(most time.Duration) { letTimePass(time.Duration(c.rnd.Int64N(int64(most)))) }

// killStarting starts an agent and kills it during startup.
func (c *chaos) killStarting() {
	c.t.Helper()
	cmd := exec.Command(filepath.Join(c.in.bin, c.in.agent), "run", "--config", c.in.config)
	cmd.Stdout, cmd.Stderr = c.in.log, c.in.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.pause(700 * time.Millisecond)
	if err := cmd.Process.Kill(); err != nil {
		c.t.Fatal(fmt.Errorf("an agent that starts ended by itself: %w\n%s", err, c.in.log.tail()))
	}
	_ = cmd.Wait()
}
