package stats

import "strconv"

// network reads the interfaces that the processes of a cgroup see.
func (c *Collector) network(cgroup string) []Interface {
	pid := c.cfg.Hierarchies.process(&c.r, cgroup)
	if pid == 0 {
		return nil
	}
	return c.r.interfaces(c.cfg.Proc, strconv.Itoa(pid), "net/dev")
}
