// Package systemd talks to systemd: it tells the service manager how monopod is, and logind when pods need time before
// the machine goes down; and it has the unit that monopod is installed with.
//
// It must not know what monopod does. Goroutines: Logind.Watch has those of its connection to D-Bus, and waits for them.
package systemd

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Notifier reports the state of a service to the service manager. The zero Notifier, and nil, do nothing.
type Notifier struct {
	// Socket is the socket of the manager; empty: there is none.
	Socket string
	// Watchdog is the time without a ping after which the service counts as dead; 0: there is no watchdog.
	Watchdog time.Duration
}

// variables are the environment variables of a service manager with its address.
func variables() []string { return []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} }

// FromEnvironment returns the Notifier of this process, and takes its variables out of the environment: to an OCI runtime
// that is started with them they would mean that it is to wait for a word of its container.
func FromEnvironment() *Notifier {
	n := &Notifier{Socket: os.Getenv("NOTIFY_SOCKET")}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	pid := os.Getenv("WATCHDOG_PID")
	if err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.Watchdog = time.Duration(usec) * time.Microsecond
	}
	for _, name := range variables() {
		_ = os.Unsetenv(name) // only a bad name could fail
	}
	return n
}

// Listens reports whether a service manager receives the reports.
func (n *Notifier) Listens() bool { return n != nil && n.Socket != "" }

// Tell sends assignments, as READY=1, see sd_notify(3).
func (n *Notifier) Tell(lines ...string) error {
	if !n.Listens() {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.Socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	defer conn.Close()
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], "\n", " ")
	}
	if _, err := conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}
