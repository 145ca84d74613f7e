package attach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"monopod/internal/cli/lookup"
	"monopod/internal/pause"
	"monopod/internal/program"
)

// forwardOptions are the flags of `port-forward`.
type forwardOptions struct {
	program.ClientFlags
	addresses []string
}

// PortForwardCommand returns `monopod port-forward`.
func (p Commands) PortForwardCommand() *cobra.Command {
	o := &forwardOptions{}
	cmd := &cobra.Command{
		Use:   "port-forward POD|KIND/NAME [LOCAL:]REMOTE...",
		Short: "Forward local TCP ports to a pod",
		Long: "REMOTE is a port in the network of the pod or the name of one of its ports; of a Service, one of its ports. LOCAL defaults to the same port; `:REMOTE` " +
			"chooses a free one. Forwarding continues until interrupted, even while the pod is replaced.",
		Example: "monopod port-forward web 8080:80\nmonopod port-forward svc/web :http --address=127.0.0.1",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return program.Usagef("usage: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := o.ObjectArg(args[:1])
			if err != nil {
				return err
			}
			return p.portForward(cmd.Context(), o, target, args[1:])
		},
	}
	o.Add(cmd.Flags())
	cmd.Flags().StringSliceVar(&o.addresses, "address", []string{"localhost"}, "`addresses` to listen on: localhost or IP addresses")
	return cmd
}

// forwarded is one forwarded port.
type forwarded struct {
	local, remote int
}

// parseForward parses [LOCAL:]REMOTE.
func parseForward(text string, through lookup.Reached) (forwarded, error) {
	local, remote, both := strings.Cut(text, ":")
	if !both {
		remote = local
	}
	f := forwarded{remote: through.Port(remote)}
	n, err := strconv.ParseUint(local, 10, 16)
	switch {
	case f.remote == 0:
		return f, program.Usagef("%q is neither a port nor the name of a port of the pod", remote)
	case !both && err == nil && n > 0: // of a Service, it is not that of the pod
		f.local = int(n)
	case !both:
		f.local = f.remote
	case local == "": // any
	case err != nil:
		return f, program.Usagef("%q is not a port", local)
	default:
		f.local = int(n)
	}
	return f, nil
}

func (p Commands) portForward(ctx context.Context, o *forwardOptions, target program.Object, specs []string) error {
	c := p.Client(&o.ClientFlags)
	through, err := lookup.NewCommands(p.Program).Reach(ctx, c, target)
	if err != nil {
		return err
	}
	key := through.Key()
	var open []net.Listener
	defer func() {
		for _, ln := range open {
			_ = ln.Close()
		}
	}()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	to := c.Streams()
	for _, text := range specs {
		f, err := parseForward(text, through)
		if err != nil {
			return err
		}
		listeners, err := listenOn(ctx, o.addresses, f.local)
		open = append(open, listeners...)
		if err != nil {
			return err
		}
		for _, ln := range listeners {
			p.Out().Printf("Forwarding from %s -> %d\n", ln.Addr(), f.remote)
			wg.Go(func() {
				accept(ctx, ln, &wg, func(conn net.Conn) {
					if err := to.Forward(ctx, key, f.remote, conn); err != nil && ctx.Err() == nil {
						p.Errs().Printf("an error occurred forwarding %s -> %d: %v\n", ln.Addr(), f.remote, err)
					}
				})
			})
		}
	}
	<-ctx.Done()
	for _, ln := range open {
		_ = ln.Close()
	}
	return nil
}

// acceptDelay is the pause after a failed accept.
const acceptDelay = 100 * time.Millisecond

// accept serves connections until the listener is closed.
func accept(ctx context.Context, ln net.Listener, wg *sync.WaitGroup, serve func(net.Conn)) {
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, say
			pause.For(ctx, acceptDelay)
			continue
		}
		wg.Go(func() { serve(conn) })
	}
}

// listenOn opens a port on addresses; 0 selects an unused one, the same on all. For localhost, one of its two addresses is sufficient.
func listenOn(ctx context.Context, addresses []string, port int) (all []net.Listener, err error) {
	var config net.ListenConfig
	for _, address := range addresses {
		hosts := []string{address}
		if address == "localhost" {
			hosts = []string{"127.0.0.1", "::1"}
		} else if net.ParseIP(address) == nil {
			return all, program.Usagef("--address %s is neither localhost nor an IP address", address)
		}
		var errs []error
		for _, host := range hosts {
			ln, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			all = append(all, ln)
			port = ln.Addr().(*net.TCPAddr).Port
		}
		if len(errs) == len(hosts) {
			return all, fmt.Errorf("listen: %w", errors.Join(errs...))
		}
	}
	return all, nil
}
