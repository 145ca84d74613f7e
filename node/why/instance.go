package why

import "fmt"

// Instance is a daemon that the service of this machine, monopod.service, does not start. The zero value is the one that it starts.
type Instance struct {
	// Config is its configuration file; empty: it is not known.
	Config string
	// Socket is where it listens.
	Socket string
	// PID is the process that has opened the socket; 0: not known.
	PID int
}

// isService reports whether it is the one of the service.
func (i Instance) isService() bool { return i.Config == "" && i.Socket == "" }

// command is how it is started.
func (i Instance) command() string {
	if i.Config == "" {
		return "`monopod run --config FILE`, with the configuration of this socket"
	}
	return fmt.Sprintf("`monopod run --config %s`", i.Config)
}

// start is what to do when it does not run.
func (i Instance) start() Step {
	text := "start it: systemctl start monopod, or `monopod run` in a terminal"
	if !i.isService() {
		text = fmt.Sprintf("start it: %s in a terminal, or the service that runs it", i.command())
	}
	return Step{Kind: Action, Text: text}
}

// restart is what to do when it does not answer.
func (i Instance) restart() []Step {
	switch {
	case i.isService():
		return []Step{{Kind: Action, Text: "check its log: journalctl -u monopod; then restart it: systemctl restart monopod (running pods continue)"}}
	case i.PID == 0:
		return []Step{
			{Kind: Action, Text: fmt.Sprintf("find its process (ss -xlp | grep %s), and check its log", i.Socket)},
			{Kind: Action, Text: fmt.Sprintf("then kill that process, and start it again: %s, or the service that runs it (running pods continue)", i.command())},
		}
	}
	return []Step{
		{Kind: Action, Text: fmt.Sprintf("check the log of process %d, which listens on %s: ls -l /proc/%d/fd/2 shows where its output goes", i.PID, i.Socket, i.PID)},
		{Kind: Action, Text: fmt.Sprintf("then stop it: kill %d, or kill -9 %d if that has no effect; and start it again: %s, or the service that runs it (running pods continue)", i.PID, i.PID, i.command())},
	}
}

// log is where to read it.
func (i Instance) log() string {
	if i.isService() {
		return "the log of monopod (journalctl -u monopod)"
	}
	return "the log of " + i.command()
}
