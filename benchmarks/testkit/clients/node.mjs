// Kafka clients for Node.js with the arguments of the testbed's clients; --library names the package.

// Node.js 20 lacks it.
Promise.withResolvers ??= () => {
  const parts = {}
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }))
  return parts
}

const given = {}
for (let i = 2; i + 1 < process.argv.length; i += 2) given[process.argv[i].slice(2)] = process.argv[i + 1]
const brokers = given.bootstrap.split(",")
const clientId = given["client-id"]
const value = Buffer.from("value")

let running = true
process.on("SIGTERM", () => { running = false })
const sleep = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds))

async function platformatic(library) {
  const producer = new library.Producer({ clientId, bootstrapBrokers: brokers })
  return { send: () => producer.send({ messages: [{ topic: given.topic, value }] }), close: () => producer.close() }
}

async function kafkajs(library) {
  const producer = new library.Kafka({ clientId, brokers }).producer()
  await producer.connect()
  return {
    send: () => producer.send({ topic: given.topic, messages: [{ value }] }),
    close: () => producer.disconnect(),
  }
}

// librdkafka, in a package with the built library.
async function kafkaCrab(library) {
  const client = new library.KafkaClient({ brokers: given.bootstrap, clientId })
  if (given.mode === "consumer") {
    const consumer = client.createConsumer({ groupId: given.group, enableAutoCommit: true })
    await consumer.subscribe(given.topic)
    return { send: () => consumer.recvBatch(100, 100), close: () => consumer.disconnect() }
  }
  const producer = client.createProducer({})
  return {
    send: () => producer.send({ topic: given.topic, messages: [{ payload: value }] }),
    close: () => producer.flush(),
  }
}

const libraries = { "@platformatic/kafka": platformatic, kafkajs, "kafka-crab-js": kafkaCrab }

const library = await import(given.library)
const client = await libraries[given.library](library.default ?? library)
while (running) {
  await client.send()
  await sleep(1000 / Number(given.rate))
}
await client.close()
