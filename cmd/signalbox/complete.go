package main

import (
	"context"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/spf13/cobra"
)

// Completion asks the server for names, but never keeps a shell waiting for long.
const (
	completionTimeout = time.Second
	maxCompletions    = 200
)

type completer = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// setCompletion gives arguments and flags of the tree their completions.
func (a *app) setCompletion(root *cobra.Command) {
	names, nodes, processes, configs := a.completeArg(semaphoreNames), a.completeArg(nodePaths), a.completeArg(processNames), a.completeArg(configNames)
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		switch {
		case strings.HasPrefix(cmd.CommandPath(), "signalbox process "):
			cmd.ValidArgsFunction = processes
		case strings.HasPrefix(cmd.CommandPath(), "signalbox config "):
			cmd.ValidArgsFunction = configs
		case strings.HasPrefix(cmd.Use, cmd.Name()+" NAME"):
			cmd.ValidArgsFunction = names
		case cmd.Name() == "ls" && strings.HasPrefix(cmd.CommandPath(), "signalbox sem"):
			cmd.ValidArgsFunction = names
		case strings.HasPrefix(cmd.CommandPath(), "signalbox node "):
			cmd.ValidArgsFunction = nodes
		case strings.HasPrefix(cmd.Use, cmd.Name()+" INSTANCE"):
			cmd.ValidArgsFunction = a.completeArg(instanceNames)
		}
		if cmd.Flags().Lookup("node") != nil {
			_ = cmd.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
				return nodes(cmd, nil, typed)
			})
		}
		for flag, words := range map[string][]string{
			"output": {"table", "json", "jsonl"}, "log-level": {"debug", "info", "warn", "error"}, "log-format": {"text", "json"},
			"read-consistency": {"strict", "relaxed", "default"}, "attach-consistency": {"strict", "relaxed", "default"},
			"election": {"oldest", "lowest-id", "preferred"}, "counters-mode": {"aggregated", "detailed", "default"},
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

// completeArg completes a verb's first argument by what list finds; behind it come the words of a
// command, which are the shell's to complete.
func (a *app) completeArg(list func(inv *invocation, typed string, yield func(string) bool) error) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		inv, _, err := a.newInvocation(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		inv.ctx, inv.longCtx = ctx, ctx
		var words []string
		_ = list(inv, typed, func(word string) bool { // what was found in time is good enough
			if word == sanitize(word) && !strings.ContainsAny(word, " \t") {
				words = append(words, word)
			}
			return len(words) < maxCompletions
		})
		if inv.conn != nil {
			inv.conn.CloseWithoutRelease()
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

func semaphoreNames(inv *invocation, typed string, yield func(string) bool) error {
	n, err := inv.openNode()
	if err != nil {
		return err
	}
	for s, err := range n.List(inv.ctx, typed) {
		if err != nil {
			return err
		}
		if configuration := strings.HasPrefix(s.Name, client.ConfigPrefix) && !strings.HasPrefix(typed, client.ConfigPrefix); !configuration && !yield(s.Name) {
			return nil
		}
	}
	return nil
}

func configNames(inv *invocation, typed string, yield func(string) bool) error {
	n, err := inv.openNode()
	if err != nil {
		return err
	}
	for c, err := range n.Configs(inv.ctx, typed) {
		if err != nil || !yield(c.Name) {
			return err
		}
	}
	return nil
}

func instanceNames(inv *invocation, typed string, yield func(string) bool) error {
	s, err := inv.status(inv.ctx)
	if err != nil {
		return err
	}
	for i := range s.Instances {
		if x := &s.Instances[i]; x.Current != "Expelled" && strings.HasPrefix(x.Name, typed) && !yield(x.Name) {
			break
		}
	}
	return nil
}

func nodePaths(inv *invocation, typed string, yield func(string) bool) error {
	c, err := inv.client()
	if err != nil {
		return err
	}
	for n, err := range c.Nodes(inv.ctx, typed) {
		if err != nil || !yield(n.Path) {
			return err
		}
	}
	return nil
}
