package stats

import "strconv"

// maxInterfaces bounds the reported interfaces of a pod, which may have created many.
const maxInterfaces = 64

// network reads the interfaces that the processes of a cgroup see.
func (c *Collector) network(cgroup string) []Interface {
	pid := c.cfg.Hierarchies.process(&c.r, cgroup)
	if pid == 0 {
		return nil
	}
	all := c.r.interfaces(c.cfg.Proc, strconv.Itoa(pid), "net/dev")
	return all[:min(len(all), maxInterfaces)]
}
