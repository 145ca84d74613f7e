package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// checkEvery is how long rules that were seen are believed to be there.
const checkEvery = time.Second

// firewall keeps the rules of our own bridge: masquerade what leaves the subnet, and let pods' traffic through
// a FORWARD chain whose policy is DROP (as Docker sets it). One set for the whole subnet, instead of a chain
// per pod as the bridge plugin's ipMasq makes: cheaper by two thirds of a set-up, and it is put back when
// somebody flushed the firewall, for running pods too.
type firewall struct {
	bridge string
	cidrs  []netip.Prefix
	tables ruleset
	// resolver: pods may ask the bridge's addresses for names.
	resolver bool

	mu     sync.Mutex // guards seenAt, and that one goroutine at a time works on the rules
	seenAt time.Time
}

// ruleset is one way to the kernel's packet filter.
type ruleset interface {
	// backend is the name CNI plugins have for it.
	backend() string
	// present says whether the rules are in place.
	present(ctx context.Context, f *firewall) bool
	// apply puts them in place, whatever is there of them.
	apply(ctx context.Context, f *firewall) error
	// remove takes them away; it is idempotent.
	remove(ctx context.Context, f *firewall) error
}

// chooseTables returns what works on this machine for all families, iptables first, as the plugins prefer it.
func chooseTables(ctx context.Context, cidrs []netip.Prefix) (ruleset, error) {
	var errs []error
	for _, p := range cidrs {
		_, err := run(ctx, "", iptablesOf(p), "-w", "5", "-t", "nat", "-S", "POSTROUTING")
		errs = append(errs, err)
	}
	iptErr := errors.Join(errs...)
	if iptErr == nil {
		return iptables{}, nil
	}
	_, nftErr := run(ctx, "", "nft", "list", "tables")
	if nftErr == nil {
		return nftables{}, nil
	}
	return nil, fmt.Errorf("neither iptables nor nftables works here, install one: %w", errors.Join(iptErr, nftErr))
}

// ensure puts the rules in place unless they are.
func (f *firewall) ensure(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.seenAt) < checkEvery {
		return nil
	}
	if !f.tables.present(ctx, f) {
		if err := f.tables.apply(ctx, f); err != nil {
			return fmt.Errorf("set firewall rules: %w", err)
		}
	}
	f.seenAt = time.Now()
	return nil
}

// remove takes the rules away.
func (f *firewall) remove(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seenAt = time.Time{}
	if err := f.tables.remove(ctx, f); err != nil {
		return fmt.Errorf("remove firewall rules: %w", err)
	}
	return nil
}

// run executes a tool; its error has what the tool said.
func run(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// iptables drives iptables and ip6tables.
type iptables struct{}

func iptablesOf(p netip.Prefix) string {
	if p.Addr().Is6() {
		return "ip6tables"
	}
	return "iptables"
}

// jump is a rule of a built-in chain that leads to one of ours.
type jump struct {
	table, from, to string
	// insert is the iptables command that adds it: -I for first, -A for last.
	insert string
	match  []string
}

func (j jump) args(command string) []string {
	args := append([]string{"-w", "5", "-t", j.table, command, j.from}, j.match...)
	return append(args, "-j", j.to)
}

func masqChain(cidrs []netip.Prefix) string    { return "MONOPOD-MASQ-" + subnetID(cidrs) }
func forwardChain(cidrs []netip.Prefix) string { return "MONOPOD-FWD-" + subnetID(cidrs) }
func inputChain(cidrs []netip.Prefix) string   { return "MONOPOD-IN-" + subnetID(cidrs) }

// jumps lists them for one subnet. The one in FORWARD is first, or a rule there that rejects the rest would
// hide it; rules that an administrator inserts later stay above it.
func (f *firewall) jumps(p netip.Prefix) []jump {
	all := f.everyJump(p)
	if !f.resolver {
		all = all[:len(all)-1]
	}
	return all
}

// everyJump has the one for the resolver last, whether or not there is one now: an earlier run may have had it.
func (f *firewall) everyJump(p netip.Prefix) []jump {
	return []jump{
		{
			table: "nat", from: "POSTROUTING", to: masqChain(f.cidrs), insert: "-A",
			match: []string{"-s", p.String(), "!", "-d", p.String()},
		},
		{table: "filter", from: "FORWARD", to: forwardChain(f.cidrs), insert: "-I"},
		{table: "filter", from: "INPUT", to: inputChain(f.cidrs), insert: "-I"},
	}
}

// restore is the input of iptables-restore --noflush: it makes or refills our chains and touches no other.
func (f *firewall) restore(p netip.Prefix) string {
	multicast := "224.0.0.0/4"
	if p.Addr().Is6() {
		multicast = "ff00::/8"
	}
	masq, fwd := masqChain(f.cidrs), forwardChain(f.cidrs)
	lines := []string{
		"*nat",
		":" + masq + " - [0:0]",
		"-A " + masq + " -d " + multicast + " -j RETURN",
		"-A " + masq + " -j MASQUERADE",
		"COMMIT",
		"*filter",
		":" + fwd + " - [0:0]",
		fmt.Sprintf("-A %s -i %s -s %s -j ACCEPT", fwd, f.bridge, p),
		fmt.Sprintf("-A %s -o %s -d %s -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", fwd, f.bridge, p),
		fmt.Sprintf("-A %s -o %s -d %s -m conntrack --ctstate DNAT -j ACCEPT", fwd, f.bridge, p), // hostPorts
	}
	if f.resolver {
		in := inputChain(f.cidrs)
		lines = append(lines, ":"+in+" - [0:0]")
		for _, protocol := range []string{"udp", "tcp"} {
			lines = append(lines, fmt.Sprintf("-A %s -i %s -s %s -d %s -p %s --dport 53 -j ACCEPT", in, f.bridge, p, gateway(p).Addr(), protocol))
		}
	}
	return strings.Join(append(lines, "COMMIT", ""), "\n")
}

func (iptables) backend() string { return "iptables" }

func (iptables) present(ctx context.Context, f *firewall) bool {
	for _, p := range f.cidrs {
		for _, j := range f.jumps(p) {
			if _, err := run(ctx, "", iptablesOf(p), j.args("-C")...); err != nil {
				return false
			}
		}
	}
	return true
}

func (iptables) apply(ctx context.Context, f *firewall) error {
	for _, p := range f.cidrs {
		tool := iptablesOf(p)
		if _, err := run(ctx, f.restore(p), tool+"-restore", "-w", "5", "--noflush"); err != nil {
			return err
		}
		for _, j := range f.jumps(p) {
			if _, err := run(ctx, "", tool, j.args("-C")...); err == nil {
				continue
			}
			if _, err := run(ctx, "", tool, j.args(j.insert)...); err != nil {
				return err
			}
		}
	}
	return nil
}

func (iptables) remove(ctx context.Context, f *firewall) error {
	var errs []error
	for _, p := range f.cidrs {
		tool := iptablesOf(p)
		for _, j := range f.everyJump(p) {
			if _, err := run(ctx, "", tool, "-w", "5", "-t", j.table, "-S", j.to); err != nil {
				continue // the chain is gone, and so is what led to it
			}
			for ctx.Err() == nil {
				if _, err := run(ctx, "", tool, j.args("-D")...); err != nil {
					break
				}
			}
			_, flush := run(ctx, "", tool, "-w", "5", "-t", j.table, "-F", j.to)
			_, drop := run(ctx, "", tool, "-w", "5", "-t", j.table, "-X", j.to)
			errs = append(errs, flush, drop)
		}
	}
	return errors.Join(errs...)
}

// nftables drives nft, where there is no iptables. It only masquerades: in nftables no table can accept what
// another one drops, so a host with a forward policy of its own must let the bridge through itself.
type nftables struct{}

func (nftables) backend() string { return "nftables" }

func nftFamily(p netip.Prefix) string {
	if p.Addr().Is6() {
		return "ip6"
	}
	return "ip"
}

func nftTable(cidrs []netip.Prefix) string { return "monopod_" + subnetID(cidrs) }

func (nftables) present(ctx context.Context, f *firewall) bool {
	for _, p := range f.cidrs {
		out, err := run(ctx, "", "nft", "list", "chain", nftFamily(p), nftTable(f.cidrs), "postrouting")
		if err != nil || !strings.Contains(out, "masquerade") {
			return false
		}
	}
	return true
}

// script replaces our table of one family in a single transaction.
func (f *firewall) script(p netip.Prefix) string {
	family, table, multicast := nftFamily(p), nftTable(f.cidrs), "224.0.0.0/4"
	if p.Addr().Is6() {
		multicast = "ff00::/8"
	}
	return fmt.Sprintf(`add table %[1]s %[2]s
delete table %[1]s %[2]s
table %[1]s %[2]s {
	chain postrouting {
		type nat hook postrouting priority 100; policy accept;
		%[1]s saddr %[3]s %[1]s daddr != %[3]s %[1]s daddr != %[4]s masquerade
	}
}
`, family, table, p, multicast)
}

func (nftables) apply(ctx context.Context, f *firewall) error {
	for _, p := range f.cidrs {
		if _, err := run(ctx, f.script(p), "nft", "-f", "-"); err != nil {
			return err
		}
	}
	return nil
}

func (nftables) remove(ctx context.Context, f *firewall) error {
	var errs []error
	for _, p := range f.cidrs {
		family, table := nftFamily(p), nftTable(f.cidrs)
		// Added first, so that deleting it cannot fail for want of it.
		_, err := run(ctx, fmt.Sprintf("add table %[1]s %[2]s\ndelete table %[1]s %[2]s\n", family, table), "nft", "-f", "-")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
