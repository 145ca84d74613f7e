// Package instance words how the daemon of a machine is started and restarted, and where its log is.
//
// It is pure. It must not find out which daemon that is.
package instance

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

// Start is what to do when it does not run.
func (i Instance) Start() string {
	text := "start it: systemctl start monopod, or `monopod run` in a terminal"
	if !i.isService() {
		text = fmt.Sprintf("start it: %s in a terminal, or the service that runs it", i.command())
	}
	return text
}

// Restart is what to do when it does not answer.
func (i Instance) Restart() []string {
	switch {
	case i.isService():
		return []string{"check its log: journalctl -u monopod; then restart it: systemctl restart monopod (running pods continue)"}
	case i.PID == 0:
		return []string{
			fmt.Sprintf("find its process (ss -xlp | grep %s), and check its log", i.Socket),
			fmt.Sprintf("then kill that process, and start it again: %s, or the service that runs it (running pods continue)", i.command()),
		}
	}
	return []string{
		fmt.Sprintf("check the log of process %d, which listens on %s: ls -l /proc/%d/fd/2 shows where its output goes", i.PID, i.Socket, i.PID),
		fmt.Sprintf("then stop it: kill %d, or kill -9 %d if that has no effect; and start it again: %s, or the service that runs it (running pods continue)", i.PID, i.PID, i.command()),
	}
}

// Log is where to read it.
func (i Instance) Log() string {
	if i.isService() {
		return "the log of monopod (journalctl -u monopod)"
	}
	return "the log of " + i.command()
}
