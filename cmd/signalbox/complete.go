package main

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	coord "github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/spf13/cobra"
)

// Completion asks the server for names, within a second.
const (
	completionTimeout = time.Second
	maxCompletions    = 200
)

type completer = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// setCompletion gives arguments and flags of the tree their completions.
func setCompletion(a *app, root *cobra.Command) {
	names, nodes := completeArg(a, ofNode(semaphoreNames)), completeArg(a, nodePaths)
	processes, configs := completeArg(a, ofNode(processNames)), completeArg(a, ofNode(configNames))
	rollouts := completeArg(a, ofNode(rolloutNames))
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		switch {
		case strings.HasPrefix(cmd.CommandPath(), "signalbox context "):
			cmd.ValidArgsFunction = contextNames
		case strings.HasPrefix(cmd.CommandPath(), "signalbox process "):
			cmd.ValidArgsFunction = processes
		case strings.HasPrefix(cmd.CommandPath(), "signalbox config "):
			cmd.ValidArgsFunction = configs
		case strings.HasPrefix(cmd.CommandPath(), "signalbox rollout "):
			cmd.ValidArgsFunction = rollouts
		case strings.HasPrefix(cmd.Use, cmd.Name()+" NAME"):
			cmd.ValidArgsFunction = names
		case cmd.Name() == "ls" && strings.HasPrefix(cmd.CommandPath(), "signalbox sem"):
			cmd.ValidArgsFunction = names
		case strings.HasPrefix(cmd.CommandPath(), "signalbox node "), cmd.CommandPath() == "signalbox top":
			cmd.ValidArgsFunction = nodes
		case strings.HasPrefix(cmd.Use, cmd.Name()+" INSTANCE"):
			cmd.ValidArgsFunction = completeArg(a, instanceNames)
		}
		if cmd.Flags().Lookup("node") != nil {
			var complete completer = func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
				return nodes(cmd, nil, typed)
			}
			_ = cmd.RegisterFlagCompletionFunc("node", complete)
		}
		if cmd.Flags().Lookup("context") != nil {
			var complete completer = func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
				return contextNames(cmd, nil, typed)
			}
			_ = cmd.RegisterFlagCompletionFunc("context", complete)
		}
		for flag, words := range map[string][]string{
			"output": {"table", "json", "jsonl"}, "log-level": {"debug", "info", "warn", "error"},
			"log-format":       {"text", "json"},
			"read-consistency": {"strict", "relaxed", "default"}, "attach-consistency": {"strict", "relaxed", "default"},
			"election":      {"oldest", "lowest-id", "preferred"},
			"counters-mode": {"aggregated", "detailed", "default"}, "sort": {"waiters", "wait", "grants", "owners", "name"},
		} {
			if cmd.Flags().Lookup(flag) != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
			}
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root)
}

// lister finds words that begin with the typed text. It may return others too.
type lister = func(inv *invocation, c *client.Client, typed string) iter.Seq2[string, error]

// completeArg completes a verb's first argument from list. The shell completes the command behind
// it.
func completeArg(a *app, list lister) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		inv, err := a.newInvocation(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		inv.ctx, inv.longCtx = ctx, ctx
		defer inv.disconnect()
		c, err := inv.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var words []string
		for word, err := range list(inv, c, typed) {
			if err != nil || len(words) == maxCompletions {
				break // the words found in time are good enough
			}
			if strings.HasPrefix(word, typed) && word == terminal.Sanitize(word) && !strings.ContainsAny(word, " \t") {
				words = append(words, word)
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

func ofNode(list func(ctx context.Context, n *client.Node, typed string) iter.Seq2[string, error]) lister {
	return func(inv *invocation, _ *client.Client, typed string) iter.Seq2[string, error] {
		n, err := inv.openNode()
		if err != nil {
			return func(yield func(string, error) bool) { yield("", err) }
		}
		return list(inv.ctx, n, typed)
	}
}

func semaphoreNames(ctx context.Context, n *client.Node, typed string) iter.Seq2[string, error] {
	return each(semaphores(ctx, n, typed, false), func(s *client.SemaphoreInfo) string { return s.Name })
}

func configNames(ctx context.Context, n *client.Node, typed string) iter.Seq2[string, error] {
	return each(n.Configs(ctx, typed), func(c *client.ConfigInfo) string { return c.Name })
}

func processNames(ctx context.Context, n *client.Node, typed string) iter.Seq2[string, error] {
	return each(coord.List(ctx, n, typed), func(p *coord.Info) string { return p.Name })
}

func rolloutNames(ctx context.Context, n *client.Node, typed string) iter.Seq2[string, error] {
	return each(rollout.List(ctx, n, typed), func(r *rollout.Info) string { return r.Track })
}

func nodePaths(inv *invocation, c *client.Client, typed string) iter.Seq2[string, error] {
	return each(admin.Nodes(c).List(inv.ctx, typed), func(n *admin.NodeInfo) string { return n.Path })
}

func instanceNames(inv *invocation, c *client.Client, _ string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		s, err := admin.New(c).Status(inv.ctx)
		if err != nil {
			return
		}
		for i := range s.Instances {
			if x := &s.Instances[i]; x.Current != "Expelled" && !yield(x.Name, nil) {
				return
			}
		}
	}
}
