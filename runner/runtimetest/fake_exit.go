package runtimetest

import (
	"fmt"
	"slices"

	"monopod/manifests"
	"monopod/runner"
)

// findLocked returns the newest instance of a container that is in the given state.
func (m *Machine) findLocked(key manifests.Key, name string, state runner.ContainerState) *fakeContainer {
	p, ok := m.pods[key]
	if !ok {
		return nil
	}
	for _, c := range slices.Backward(p.containers) {
		if c.Name == name && c.State == state {
			return c
		}
	}
	return nil
}

// Exit lets the process of a container end by itself with the given code.
func (m *Machine) Exit(key manifests.Key, name string, code int) error {
	m.mu.Lock()
	c := m.findLocked(key, name, runner.ContainerRunning)
	if c == nil {
		m.mu.Unlock()
		return fmt.Errorf("pod %s: container %s does not run", key, name)
	}
	m.exitLocked(c, code, "")
	m.mu.Unlock()
	m.notify(key)
	return nil
}

// OOMKill lets the kernel kill the process of a container for lack of memory.
func (m *Machine) OOMKill(key manifests.Key, name string) error {
	m.mu.Lock()
	c := m.findLocked(key, name, runner.ContainerRunning)
	if c == nil {
		m.mu.Unlock()
		return fmt.Errorf("pod %s: container %s does not run", key, name)
	}
	m.exitLocked(c, 137, runner.ReasonOOMKilled)
	m.mu.Unlock()
	m.notify(key)
	return nil
}

// KillProcess is kill -9 from outside.
func (m *Machine) KillProcess(pid uint32) error {
	m.mu.Lock()
	for key, p := range m.pods {
		for _, c := range p.containers {
			if c.State == runner.ContainerRunning && c.PID == pid {
				m.exitLocked(c, 137, "")
				m.mu.Unlock()
				m.notify(key)
				return nil
			}
		}
	}
	m.mu.Unlock()
	return fmt.Errorf("no process %d", pid)
}

// ProcessAlive reports whether a process exists.
func (m *Machine) ProcessAlive(pid uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pods {
		for _, c := range p.containers {
			if c.State == runner.ContainerRunning && c.PID == pid {
				return true
			}
		}
	}
	return false
}

// exitLocked ends a process. An empty reason follows from the code.
func (m *Machine) exitLocked(c *fakeContainer, code int, reason string) {
	c.stopTimer()
	c.leave()
	if reason == "" {
		reason = runner.ReasonError
		if code == 0 {
			reason = runner.ReasonCompleted
		}
	}
	c.State, c.PID = runner.ContainerExited, 0
	c.Exit = &runner.Termination{
		ContainerID: c.ID, ExitCode: code, Reason: reason, StartedAt: c.StartedAt, FinishedAt: m.nowLocked(),
	}
}

func (c *fakeContainer) stopTimer() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// leave ends the commands that run beside the process.
func (c *fakeContainer) leave() {
	if c.gone != nil {
		close(c.gone)
		c.gone = nil
	}
}

// UseDisk makes a pod's sandbox use so much of the disk.
func (m *Machine) UseDisk(key manifests.Key, used runner.DiskUsage) {
	m.mu.Lock()
	if p := m.pods[key]; p != nil && p.sandbox != nil {
		p.sandbox.Disk = &used
	}
	m.mu.Unlock()
	m.notify(key)
}
