// A @platformatic/kafka producer with the arguments of the testbed's clients.

// Node.js 20 lacks it.
Promise.withResolvers ??= () => {
  const parts = {}
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }))
  return parts
}
const { Producer } = await import("@platformatic/kafka")

const given = {}
for (let i = 2; i + 1 < process.argv.length; i += 2) given[process.argv[i].slice(2)] = process.argv[i + 1]
const producer = new Producer({ clientId: given["client-id"], bootstrapBrokers: given.bootstrap.split(",") })
let running = true
process.on("SIGTERM", () => { running = false })
while (running) {
  await producer.send({ messages: [{ topic: given.topic, value: Buffer.from("value") }] })
  await new Promise(resolve => setTimeout(resolve, 1000 / Number(given.rate)))
}
await producer.close()
