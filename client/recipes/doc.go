// Package recipes has what fewer programs need than a lock, made of semaphores and their data:
//
//   - [Once] runs a task once in each period, on whichever host comes first.
//   - [Gate] holds any number of sessions until it is opened.
//   - [Latch] opens for good when a number of keys are done.
//   - [Barrier] is where a number of parties meet, and learn who the others are.
//   - [Pool] bounds how many tasks run at a time, over the goroutines of several processes.
//
// Locks, elections, services and configurations are methods of [client.Session].
//
//	task := recipes.NewOnce(s, "report", 24*time.Hour)
//	ran, err := task.Run(ctx, func(ctx context.Context, p recipes.Period) error {
//		return report(ctx, p.Start, p.Lease.Token())
//	})
//
// A constructor names a recipe, and sends nothing. Two values of one name are the same recipe, and a
// semaphore has one use: give each recipe a name of its own. Errors and options without a package in
// these pages are those of package client.
package recipes
