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

// killsAtOnce is how many kills come between two looks at what runs.
const killsAtOnce = 5

// TestAttackKills: the agent is killed at random moments, also of its start, while pods are made, edited, removed and end by themselves. No
// pod is lost, none is there twice, no container is restarted for nothing, and nothing is left at the end.
func TestAttackKills(t *testing.T) {
	kills := 10
	if large() {
		kills = 500
	}
	in := newInstance(t, "crashLoopBackOff: {maxContainerRestartPeriod: 1s}", "fileCheckFrequency: 5s")
	c := &chaos{t: t, in: in, rnd: newRand(11), id: "kills-" + strconv.Itoa(syscall.Getpid()), done: map[string]int{}}
	for i := range 12 {
		c.pods = append(c.pods, newChaosPod(i))
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
	if log := in.log.String(); strings.Contains(log, "could not be used") || strings.Contains(log, "is damaged") {
		t.Error("a kill has damaged a file")
	}
}

// step changes what is to run, or ends something.
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

// pause waits for a random time: what happens by itself meanwhile is what this is about.
func (c *chaos) pause(most time.Duration) { letTimePass(time.Duration(c.rnd.Int64N(int64(most)))) }

// killStarting starts an agent and kills it somewhere on its way.
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
