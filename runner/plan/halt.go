package plan

// halt stops the running containers and keeps one instance of each container on record.
func (p *sandboxPlanner) halt() {
	switch {
	case p.o.Halt.Remove:
		p.remove()
	case p.o.Sandbox != nil:
		p.end("halted: " + p.o.Halt.Reason)
	}
}
