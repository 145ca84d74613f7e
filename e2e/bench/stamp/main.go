// stamp is the workload of the benchmark: it records its start time, then waits for SIGTERM.
//
//	stamp DIR NAME [once]
//
// It writes DIR/NAME.PID with CLOCK_MONOTONIC in nanoseconds and, if possible, its pid on the host. With once, it then exits.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		fmt.Fprintln(os.Stderr, "stamp:", err)
		os.Exit(1)
	}
	now := strconv.FormatInt(ts.Nano(), 10)
	tmp := os.Args[1] + "/." + os.Args[2] + now
	if err := os.WriteFile(tmp, []byte(now), 0o644); err == nil {
		err = os.Rename(tmp, os.Args[1]+"/"+os.Args[2]+"."+now)
		if err != nil {
			fmt.Fprintln(os.Stderr, "stamp:", err)
			os.Exit(1)
		}
	}
	if len(os.Args) > 3 {
		return
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
}
